"""Guards on what a forward reads besides its arguments, parameters and buffers: kernels were written for one state of it.

It reads attributes of modules and what lists, dictionaries and objects in them hold, attributes of their classes, and globals.
"""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Iterable, Iterator
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import torch

from kernelllm.app.live.call_arguments import PLAIN
from kernelllm.app.live.read_names import AsItems, ReadNames, read_by_layer

_EVERY_MODULE = frozenset(vars(torch.nn.Module()))
"""Attributes that are no module's own."""
_DEEP, _MOST = 4, 8192
"""Objects in objects that are looked into, and values that are compared in every call."""
_KEPT = (FunctionType, MethodType, BuiltinFunctionType, type, torch.nn.Module, property, staticmethod, classmethod)
"""What is the same as long as it is the same object."""


class Watched:
    """Places and what was in them. ``tensors``: of tensors those that the kernels hold."""

    def __init__(self, modules: Iterable[torch.nn.Module], tensors: Iterable[torch.Tensor] = ()) -> None:
        registered = list(modules)
        self._held = {(t.data_ptr(), t.shape) for t in tensors}
        self._equal: list[list[Any]] = [[], [], []]
        """Containers, keys, and plain values."""
        self._together: list[tuple[operator.itemgetter[Any], list[Any], list[Any]]] = []
        """The same by keys."""
        self._same: list[list[Any]] = [[], [], []]
        """The same, of objects that must be the very same."""
        self._tied: list[list[Any]] = [[], [], [], []]
        """Places of parameters that are one, and of another name of each."""
        self._lengths: list[tuple[Any, int]] = []
        self._seen: set[int] = set()
        self.modules = [*registered, *_unregistered(registered)]
        """Also those that sit in plain lists or objects."""
        for module in self.modules[len(registered) :]:
            self._look_at_hidden(module)
        self._look_at_state()
        self.code = ReadNames(self.modules)
        for module in self.modules:
            kind: Any = type(module)
            read = read_by_layer(kind)
            for name, child in module._modules.items():
                _note(self._same, vars(module)["_modules"], name, child)
            for name, value in vars(module).items():
                if name not in _EVERY_MODULE and (read is None or name in read or name in self.code.names):
                    self._look(vars(module), name, value, _DEEP)
        for owner, name, value in self.code.places:
            self._look(owner, name, value, 2)
        self._together = _together(*self._equal)
        self._attributes = [vars(module) for module in self.modules]
        self._hidden = [self.code.of_class[type(module)] - vars(module).keys() for module in self.modules]
        self._counts = list(map(len, self._attributes))

    def changed(self) -> bool:
        """Whether anything is another now."""
        try:
            places, keys, objects = self._same
            other = any(list(map(getter, owners)) != values for getter, owners, values in self._together)
            other = other or any(map(operator.is_not, map(operator.getitem, places, keys), objects))
            other = other or any(len(container) != count for container, count in self._lengths)
            return other or self._untied() or self._hides()
        except (KeyError, IndexError, ValueError, RuntimeError):  # a tensor or an array may be in a number's place
            return True

    def _untied(self) -> bool:
        """Whether parameters that were one are two now; without gradients they may be two that share memory."""
        first, one, second, two = self._tied
        left: Any = map(operator.getitem, first, one)
        right: Any = map(operator.getitem, second, two)
        apart = [(a, b) for a, b in zip(left, right, strict=True) if a is not b]
        return bool(apart) and (torch.is_grad_enabled() or any(a is None or b is None or a.data_ptr() != b.data_ptr() for a, b in apart))

    def changed_names(self) -> list[str]:
        """Names of plain values that are others now."""
        found = []
        for owner, name, value in zip(*self._equal, strict=True):
            try:
                same = owner[name] is value or bool(owner[name] == value)  # NaN is never equal
            except (KeyError, IndexError):
                same = False
            if not same and isinstance(name, str) and isinstance(owner, dict):
                found.append(name)
        return list(dict.fromkeys(found))

    def put_back(self, names: Iterable[str]) -> None:
        """Give plain values of these names what they were."""
        wanted = set(names)
        for owner, name, value in zip(*self._equal, strict=True):
            if name in wanted and isinstance(owner, dict):
                owner[name] = copy.deepcopy(value)

    def _hides(self) -> bool:
        """Whether a module has an attribute now that its class had for it."""
        counts = list(map(len, self._attributes))
        if counts != self._counts:
            if any(not names.isdisjoint(attributes) for names, attributes in zip(self._hidden, self._attributes, strict=True)):
                return True
            self._counts = counts
        return False

    def _look_at_state(self) -> None:
        """Parameters that are one stay one, and what is None stays None."""
        first: dict[int, tuple[Any, str]] = {}
        for module in self.modules:
            for kind in ("_parameters", "_buffers"):
                for name, tensor in vars(module)[kind].items():
                    if tensor is None:
                        _note(self._same, vars(module)[kind], name, None)
                        continue
                    if id(tensor) in first and kind == "_parameters":
                        for column, one in zip(self._tied, (*first[id(tensor)], vars(module)[kind], name), strict=True):
                            column.append(one)
                    first.setdefault(id(tensor), (vars(module)[kind], name))

    def _look_at_hidden(self, module: torch.nn.Module) -> None:
        """A module that the model does not know of: its tensors are constants of the graph."""
        _note(self._equal, vars(module), "training", module.training)
        for kind in ("_parameters", "_buffers"):
            for name, tensor in vars(module)[kind].items():
                if tensor is not None:
                    _note(self._same, vars(module)[kind], name, tensor)

    def _look(self, owner: Any, key: Any, value: Any, deep: int) -> None:
        if len(self._equal[0]) + len(self._same[0]) >= _MOST:
            return
        if _is_plain(value, deep):
            _note(self._equal, owner, key, copy.deepcopy(value))
        elif isinstance(value, torch.Tensor):
            if _has_memory(value) and (value.data_ptr(), value.shape) in self._held:
                _note(self._same, owner, key, value)
        elif isinstance(value, _KEPT):
            _note(self._same, owner, key, value)
        elif id(value) not in self._seen and deep:
            self._seen.add(id(value))
            self._inside(owner, key, value, deep)

    def _inside(self, owner: Any, key: Any, value: Any, deep: int) -> None:
        before = len(self._equal[0]) + len(self._same[0])
        if isinstance(value, list | tuple | dict):
            for at, item in list(value.items() if isinstance(value, dict) else enumerate(value)):
                self._look(value, at, item, deep - 1)
            if isinstance(value, list | dict):
                self._lengths.append((value, len(value)))
        elif isinstance(value, functools.partial):
            self._look(AsItems(value), "func", value.func, deep - 1)
            for name, item in value.keywords.items():
                self._look(value.keywords, name, item, deep - 1)
            _note(self._same, owner, key, value)
        elif type(value).__module__ == "numpy" and hasattr(value, "tobytes"):
            if value.nbytes <= _MOST:
                _note(self._equal, _Bytes(value), None, value.tobytes())
            _note(self._same, owner, key, value)
        elif isinstance(fields := getattr(value, "__dict__", None), dict) and not type(value).__module__.startswith("torch."):
            for name, item in list(fields.items()):
                self._look(fields, name, item, deep - 1)
        for name in _slots(value):
            if hasattr(value, name):
                self._look(AsItems(value), name, getattr(value, name), deep - 1)
        if len(self._equal[0]) + len(self._same[0]) > before:  # it holds what is read; what a forward fills anew does not
            _note(self._same, owner, key, value)


def _together(owners: list[Any], names: list[Any], values: list[Any]) -> list[tuple[operator.itemgetter[Any], list[Any], list[Any]]]:
    """What is asked of owners with the same keys, as layers of one class: all of an owner's values are one look."""
    kept: dict[int, tuple[Any, list[Any], list[Any]]] = {}
    for owner, name, value in zip(owners, names, values, strict=True):
        _, its, ones = kept.setdefault(id(owner), (owner, [], []))
        its.append(name)
        ones.append(value)
    groups: dict[tuple[Any, ...], tuple[list[Any], list[Any]]] = {}
    for owner, its, ones in kept.values():
        alike = groups.setdefault(tuple(its), ([], []))
        alike[0].append(owner)
        alike[1].append(ones[0] if len(ones) == 1 else tuple(ones))
    return [(operator.itemgetter(*names), *alike) for names, alike in groups.items()]


class _Bytes:
    """The content of an array, whatever is asked for."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __getitem__(self, key: None) -> bytes:
        return bytes(self._array.tobytes())


def _unregistered(modules: list[torch.nn.Module]) -> list[torch.nn.Module]:
    """Modules in lists, tuples, dictionaries and objects of these that are none of their submodules."""
    known = {id(module) for module in modules}
    found: list[torch.nn.Module] = []

    def search(value: Any, deep: int) -> None:
        if isinstance(value, torch.nn.Module):
            for module in value.modules():
                if id(module) not in known:
                    known.add(id(module))
                    found.append(module)
                    within(module, deep)
        elif deep and isinstance(value, list | tuple | dict):
            for item in value.values() if isinstance(value, dict) else value:
                search(item, deep - 1)

    def within(module: torch.nn.Module, deep: int) -> None:
        for name, value in vars(module).items():
            if name not in _EVERY_MODULE:
                search(value, deep)

    for module in modules:
        within(module, _DEEP)
    return found


def _slots(value: Any) -> Iterator[str]:
    for base in type(value).__mro__:
        names = vars(base).get("__slots__", ())
        yield from (n for n in ((names,) if isinstance(names, str) else names) if isinstance(n, str) and not n.startswith("__"))


def _note(lists: list[list[Any]], owner: Any, key: Any, value: Any) -> None:
    for column, one in zip(lists, (owner, key, value), strict=True):
        column.append(one)


def _is_plain(value: Any, deep: int) -> bool:
    """Whether it is a plain value, or a container of such alone."""
    if type(value) in PLAIN or any(f"{base.__module__}.{base.__name__}" == "numpy.generic" for base in type(value).__mro__):
        return True
    if type(value) not in (list, tuple, dict, set, frozenset, torch.Size) or not deep:
        return False
    items = [*value.keys(), *value.values()] if isinstance(value, dict) else value
    return all(_is_plain(item, deep - 1) for item in items)


def _has_memory(tensor: torch.Tensor) -> bool:
    return type(tensor) is torch.Tensor and tensor.layout is torch.strided and tensor.device.type != "meta"


__all__ = ["Watched"]
