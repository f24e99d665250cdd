"""Tensors in nested lists, tuples and dictionaries: found, and replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor, depth first."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors(item)


def mapped(value: Any, function: Callable[[torch.Tensor], Any]) -> Any:
    """``value`` with ``function`` of each tensor in it."""
    import torch

    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        items = [mapped(v, function) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {k: mapped(v, function) for k, v in value.items()}
    return value
