"""What a forward reads besides its arguments, parameters and buffers: attributes of modules, and what lists, dictionaries and objects in
them hold. Kernels were written for one state of it.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterable
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import torch

from kernelllm.app.live.call_arguments import PLAIN

_EVERY_MODULE = frozenset(vars(torch.nn.Module()))
"""Attributes that are no module's own."""
_DEEP, _MOST = 4, 4096
"""Objects in objects that are looked into, and values that are compared in every call."""
_KEPT = (FunctionType, MethodType, BuiltinFunctionType, type, torch.nn.Module)
"""What is the same as long as it is the same object."""


class Watched:
    """Places and what was in them. ``tensors``: of tensors those that the kernels hold."""

    def __init__(self, modules: Iterable[torch.nn.Module], tensors: Iterable[torch.Tensor]) -> None:
        self._held = {(t.data_ptr(), t.shape) for t in tensors}
        self._equal: list[list[Any]] = [[], [], []]
        """Containers, keys, and plain values."""
        self._same: list[list[Any]] = [[], [], []]
        """The same, of objects that must be the very same."""
        self._lengths: list[tuple[Any, int]] = []
        self._seen: set[int] = set()
        for module in modules:
            for name, child in module._modules.items():
                _note(self._same, vars(module)["_modules"], name, child)
            for name, value in vars(module).items():
                if name not in _EVERY_MODULE:
                    self._look(vars(module), name, value, _DEEP)

    def changed(self) -> bool:
        """Whether anything is another now."""
        try:
            (owners, names, values), (places, keys, objects) = self._equal, self._same
            other = list(map(operator.getitem, owners, names)) != values
            other = other or any(map(operator.is_not, map(operator.getitem, places, keys), objects))
            return other or any(len(container) != count for container, count in self._lengths)
        except (KeyError, IndexError):
            return True

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
            if value and isinstance(value, list | dict):
                self._lengths.append((value, len(value)))
        elif isinstance(fields := getattr(value, "__dict__", None), dict) and not type(value).__module__.startswith("torch."):
            for name, item in list(fields.items()):
                self._look(fields, name, item, deep - 1)
        if len(self._equal[0]) + len(self._same[0]) > before:  # it holds what is read; what a forward fills anew does not
            _note(self._same, owner, key, value)


def _note(lists: list[list[Any]], owner: Any, key: Any, value: Any) -> None:
    for column, one in zip(lists, (owner, key, value), strict=True):
        column.append(one)


def _is_plain(value: Any, deep: int) -> bool:
    """Whether it is a plain value, or a container of such alone."""
    if type(value) in PLAIN:
        return True
    if type(value) not in (list, tuple, dict, set, frozenset) or not deep or not value:
        return False
    items = [*value.keys(), *value.values()] if isinstance(value, dict) else value
    return all(_is_plain(item, deep - 1) for item in items)


def _has_memory(tensor: torch.Tensor) -> bool:
    return type(tensor) is torch.Tensor and tensor.layout is torch.strided and tensor.device.type != "meta"


__all__ = ["Watched"]
