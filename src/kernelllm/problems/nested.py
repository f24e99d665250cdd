"""Finds and replaces tensors in nested lists, tuples, dictionaries and dataclasses."""

from __future__ import annotations

import dataclasses
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
    elif isinstance(value, Mapping) or is_dataclass(value):
        for item in fields(value).values():
            yield from tensors(item)


def computable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself; one of float8, which knows hardly any operation, in float32."""
    return tensor.float() if tensor.is_floating_point() and tensor.element_size() == 1 else tensor


def finite(tensor: torch.Tensor) -> torch.Tensor:
    """Where a tensor is neither NaN nor infinite."""
    import torch

    return torch.isfinite(computable(tensor))


def mapped(value: Any, function: Callable[[torch.Tensor], Any]) -> Any:
    """``value`` with ``function`` of each tensor in it; dataclasses become dictionaries."""
    import torch

    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        items = [mapped(v, function) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict) or is_dataclass(value):
        return {k: mapped(v, function) for k, v in fields(value).items()}
    return value


def is_dataclass(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def fields(value: Any) -> Mapping[str, Any]:
    """The items of a mapping; the fields of a dataclass that is none."""
    return value if isinstance(value, Mapping) else {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
