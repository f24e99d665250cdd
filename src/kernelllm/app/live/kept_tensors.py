"""What a forward keeps in its module for the next call: tensors in attributes, lists and dictionaries, reassigned buffers, and numbers.

A graph holds the values of one call. A module whose next call reads what this one left is therefore no graph.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from kernelllm.app.live.watched import Watched
from kernelllm.core.errors import CaptureError

_Place = tuple[Any, Any]
"""The identity of a container and the key in it."""


@dataclass
class _Held:
    """A tensor, a list or a dictionary, or None where a first call may put one, and where it is."""

    owner: Any
    key: Any
    name: str
    value: Any
    version: int = 0
    copy: torch.Tensor | None = None

    def same(self, other: _Held | None) -> bool:
        return other is not None and other.value is self.value and other.version == self.version


def _places(module: torch.nn.Module) -> Iterator[_Held]:
    for path, part in module.named_modules():
        start = f"{path}." if path else ""
        for name, value in part._buffers.items():
            yield _Held(part._buffers, name, start + name, value)
        for name, value in vars(part).items():
            yield _Held(vars(part), name, start + name, value)
            if type(value) in (list, dict) and name not in ("_parameters", "_buffers", "_modules"):
                for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
                    yield _Held(value, key, f"{start}{name}[{key!r}]", inner)


def _held(module: torch.nn.Module) -> dict[_Place, _Held]:
    buffers = {id(part._buffers) for part in module.modules()}
    found = {}
    for held in _places(module):
        tensor = isinstance(held.value, torch.Tensor)
        if tensor or held.value is None or type(held.value) in (list, dict):
            found[id(held.owner), held.key] = held
            if tensor and id(held.owner) not in buffers:  # what is written into a buffer is part of the graph
                held.version, held.copy = held.value._version, held.value.detach().clone()
    return found


@torch.no_grad()
def _put_back(module: torch.nn.Module, held: dict[_Place, _Held]) -> None:
    for one in held.values():  # lists first, which tracing may have copied
        if type(one.value) in (list, dict):
            one.owner[one.key] = one.value
    for place, now in reversed(list(_held(module).items())):
        if place not in held:
            del now.owner[now.key]
    for one in held.values():
        one.owner[one.key] = one.value
        if one.copy is not None and one.value._version != one.version:
            one.value.copy_(one.copy)


class KeptTensors:
    """What the calls of a module leave in it."""

    def __init__(self, module: torch.nn.Module, run: Callable[[], None]) -> None:
        """``run`` calls the module: once more where a call leaves anything, which a cache does once and a memory each time."""
        self._module, self._before = module, _held(module)
        self._values = Watched(module.modules())
        run()
        again = self._after = _held(module)
        self._counted: list[str] = []
        """Plain values that each call changes."""
        if any(not held.same(self._before.get(place)) for place, held in again.items()) or self._values.changed_names():
            once = Watched(module.modules())
            run()
            self._after = _held(module)
            self._counted = once.changed_names()
        tensors = [(place, held) for place, held in self._after.items() if isinstance(held.value, torch.Tensor)]
        self._left = [held for place, held in tensors if not held.same(again.get(place))]

    def refuse(self, read: Iterable[torch.Tensor], buffers: Iterable[str]) -> tuple[str, ...]:
        """Names of what each call leaves for others to read. Raises CaptureError where a graph reads it: these tensors or buffers."""
        objects, named = {id(t) for t in read}, set(buffers)
        carried = [held.name for held in self._left if id(held.value) in objects or held.name in named]
        told = [name for name in self._counted if self._values.code.only_counted(name)]
        carried += [name for name in self._counted if name not in told]
        _put_back(self._module, self._before if carried else self._after)  # tracing may have left tensors of its own
        self._values.put_back(self._values.changed_names() if carried else self._counted)
        if not carried:
            return (*(held.name for held in self._left), *told)
        raise CaptureError(
            f"The forward of {type(self._module).__name__} keeps {', '.join(carried)} from one call for the next.",
            fix="Hand it in and out as an argument and a result, or write into a buffer: self.register_buffer(...), self.state.copy_(...).",
        )


@contextmanager
def no_other_dice(name: str) -> Iterator[None]:
    """Raises CaptureError where random numbers of Python or NumPy are drawn: a graph would hold the ones of one call."""
    before = _dice()
    yield
    if _dice() != before:
        raise CaptureError(
            f"The forward of {name} draws random numbers by Python's random or by NumPy.", fix="Draw them by torch, or outside of it."
        )


def _dice() -> Any:
    numpy = sys.modules.get("numpy")
    return random.getstate(), str(numpy.random.get_state()) if numpy is not None else ""


@contextmanager
def kept_state(module: torch.nn.Module) -> Iterator[None]:
    """Buffers and random generators are put back afterwards."""
    before = [(b, b.clone()) for b in module.buffers()]
    devices = {t.device for t in (*module.parameters(), *module.buffers()) if t.is_cuda}
    with torch.random.fork_rng(devices=list(devices)):
        yield
    with torch.no_grad():
        for buffer, value in before:
            buffer.copy_(value)
