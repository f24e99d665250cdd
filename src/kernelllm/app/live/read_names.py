"""What the code of a forward reads besides its module: attributes of classes, globals of its file, variables of functions around it."""

from __future__ import annotations

import dataclasses
import dis
import functools
import sys
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

_PYTHON = str(Path(dis.__file__).parent)
_MOST = 400
"""Functions that are looked into."""


class AsItems:
    """The attributes of an object, such as slots or the content of a cell, by ``[name]``."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self._value, name)
        except (AttributeError, ValueError) as error:
            raise KeyError(name) from error


class ReadNames:
    """The functions that the forwards of some modules reach, as far as names tell, and the places that they read."""

    def __init__(self, modules: Iterable[torch.nn.Module]) -> None:
        self.functions: list[types.FunctionType] = []
        self.places: list[tuple[Any, str, Any]] = []
        """Owner, name and value, of classes, globals and cells."""
        self.of_class: dict[type, frozenset[str]] = {}
        """Names that the code may read off a class, which an attribute of the module would hide."""
        self._seen: set[Any] = set()
        self.names: dict[str, None] = {}
        """All names and texts in the code."""
        many = list(modules)
        kinds = list(dict.fromkeys(map(type, many)))
        self._bases = list(dict.fromkeys(base for kind in kinds for base in kind.__mro__ if not _is_elsewhere(base)))
        for kind in kinds:
            owner = next((base for base in kind.__mro__ if "forward" in vars(base)), None)
            if owner is not None:
                self._place(vars(owner), "forward", vars(owner)["forward"])
        for module in many:
            self._visit(vars(module).get("forward"))
        for kind in kinds:
            found = {n for base in kind.__mro__ if base in self._bases for n in self.names if n in vars(base)}
            self.of_class[kind] = frozenset(found)

    def _place(self, owner: Any, name: str, value: Any) -> None:
        if (id(owner), name) not in self._seen:
            self._seen.add((id(owner), name))
            self.places.append((owner, name, value))
            self._visit(value)

    def _visit(self, value: Any) -> None:
        """Look into a function, or what holds one."""
        if isinstance(value, property):
            value = value.fget
        elif isinstance(value, staticmethod | classmethod | types.MethodType | functools.cached_property):
            value = getattr(value, "__func__", None) or getattr(value, "func", None)
        if not isinstance(value, types.FunctionType) or _is_elsewhere(value) or len(self.functions) >= _MOST or id(value) in self._seen:
            return
        self._seen.add(id(value))
        self.functions.append(value)
        for cell in value.__closure__ or ():
            holder = AsItems(cell)
            try:
                content = holder["cell_contents"]
            except KeyError:  # not assigned yet
                continue
            if _is_kept(content):
                self.places.append((holder, "cell_contents", content))
                self._visit(content)
        names = list(dict.fromkeys(_names(value.__code__)))
        for name in names:
            found = value.__globals__.get(name, value)
            if found is not value and _is_kept(found):
                self._place(value.__globals__, name, found)
            elif isinstance(found, type | types.ModuleType) and not _is_elsewhere(found):  # settings, or functions, by ``CONFIG.scale``
                for inner in names:
                    if inner in vars(found) and _is_kept(vars(found)[inner]):
                        self._place(vars(found), inner, vars(found)[inner])
            if name not in self.names:
                self.names[name] = None
                for base in self._bases:
                    if name in vars(base) and _is_kept(vars(base)[name], of_class=True):
                        self._place(vars(base), name, vars(base)[name])

    def only_counted(self, name: str) -> bool:
        """Whether the code reads such a name no more often than it writes it: ``self.calls += 1``."""
        read = written = 0
        for code in [c for f in self.functions for c in _codes(f.__code__)]:
            for step in dis.get_instructions(code):
                if step.argval == name:
                    read += step.opname.startswith("LOAD_")
                    written += step.opname.startswith("STORE_")
        return read <= written


_MAKING = {"__init__", "__new__", "__setstate__", "__repr__", "extra_repr", "reset_parameters"}


@functools.cache
def read_by_layer(kind: Any) -> frozenset[str] | None:
    """Names in the methods of one of torch's own layers, but for those that make it; None for other modules.

    The rest of its attributes, such as numbers of channels, nobody reads: its parameters tell.
    """
    if not kind.__module__.startswith("torch.nn.modules."):
        return None
    methods = [f for base in kind.__mro__ for n, f in vars(base).items() if isinstance(f, types.FunctionType) and n not in _MAKING]
    return frozenset(name for method in methods for name in _names(method.__code__))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _names(code: types.CodeType) -> Iterator[str]:
    for one in _codes(code):
        yield from one.co_names
        yield from (text for text in one.co_consts if isinstance(text, str) and text.isidentifier())  # getattr(layer, "stride")


def _is_elsewhere(value: Any) -> bool:
    """Whether it is torch's, NumPy's or Python's own: what they hold is not for users to change, and it is much."""
    home = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None) or ""
    return _of_library(home.partition(".")[0])


@functools.cache
def _of_library(package: str) -> bool:
    file = getattr(sys.modules.get(package), "__file__", None) or _PYTHON
    return package in ("torch", "numpy") or (package in sys.stdlib_module_names and Path(file).is_relative_to(_PYTHON))


def _is_kept(value: Any, of_class: bool = False) -> bool:
    """Whether a place with such a value is worth a look: plain values and functions, not modules, classes and loggers."""
    if isinstance(value, types.FunctionType):
        return not _is_elsewhere(value)
    if of_class and isinstance(value, property | staticmethod | classmethod):
        return True
    if isinstance(value, types.SimpleNamespace) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        return True
    return type(value) in (bool, int, float, complex, str, type(None), tuple, list, dict, set, frozenset, torch.dtype)


__all__ = ["AsItems", "ReadNames", "read_by_layer"]
