"""``len(tensor)`` in traced code stays symbolic: Python wants a plain number, which would fix the size."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import torch


@contextmanager
def symbolic_lengths(model: torch.nn.Module) -> Iterator[None]:
    """While open, the files that the modules' classes are written in have a ``len`` of their own. Callers hold the TORCH lock."""
    spaces = {id(space): space for module in model.modules() for space in _spaces(type(module)) if "len" not in space}
    for space in spaces.values():
        space["len"] = _length
    try:
        yield
    finally:
        for space in spaces.values():
            del space["len"]


def _spaces(kind: type) -> Iterator[dict[str, Any]]:
    for owner in kind.__mro__:
        if owner.__module__.partition(".")[0] not in ("torch", "builtins"):
            methods = (m for m in vars(owner).values() if isinstance(m, FunctionType))
            yield from (inspect.unwrap(m).__globals__ for m in methods)


def _length(value: Any) -> Any:
    return value.shape[0] if isinstance(value, torch.Tensor) and value.dim() else len(value)
