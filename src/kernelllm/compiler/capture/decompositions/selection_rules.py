"""Operators that select or join elements: adaptive max pools of varying sizes, ``cat``; ``median`` and ``kthvalue``, by a sort."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

aten = torch.ops.aten


def rules(table: Mapping[Any, Callable[..., Any]], *, library: bool) -> dict[Any, Callable[..., Any]]:
    """The rules, by operator. ``table`` has Inductor's, which older versions of torch lack; ``library``: what torch does itself stays."""
    forward = (aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default)
    found: dict[Any, Callable[..., Any]] = {op: _adaptive_max_pool(table[op]) for op in forward if op in table}
    found |= {aten.adaptive_max_pool2d_backward.default: _unpooled(2), aten.adaptive_max_pool3d_backward.default: _unpooled(3)}
    if library:
        found[aten.cat.default] = _joined_in_order(table[aten.cat.default])
    else:
        found |= {aten.kthvalue.default: _kthvalue, aten.median.dim: _median_of_dim, aten.median.default: _median}
    return found


def _joined_in_order(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Inductor's rule for ``cat``, with the layout that torch gives a tensor which is joined to empty ones: not its own."""

    def rule(tensors: Any, dim: int = 0) -> Any:
        made = plain(tensors, dim)
        return made if made is NotImplemented or len(tensors) == 1 else made.contiguous()

    return rule


def _adaptive_max_pool(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Inductor's rule where it serves all sizes: it fixes the windows of sizes that vary, if they divide evenly at first."""

    def rule(x: Any, output_size: Any) -> Any:
        windows = any(out > 1 for out in output_size)
        varies = any(isinstance(size, torch.SymInt) for size in x.shape[-len(output_size):])
        return NotImplemented if windows and varies else plain(x, output_size)

    return rule


def _unpooled(spatial: int) -> Callable[..., Any]:
    """The gradient of an adaptive maximum: windows may overlap, so each element sums what is sent to it."""

    def rule(grad: Any, x: Any, indices: Any) -> Any:
        flat = torch.zeros_like(x, memory_format=torch.contiguous_format).flatten(-spatial)
        return flat.scatter_add(-1, indices.flatten(-spatial), grad.flatten(-spatial)).view(x.shape)

    return rule


def _kthvalue(x: Any, k: Any, dim: int = -1, keepdim: bool = False) -> Any:
    return _at(x, k - 1, dim, keepdim) if x.dim() else NotImplemented


def _median_of_dim(x: Any, dim: int, keepdim: bool = False) -> Any:
    """The lower one of two in the middle. Where a number is NaN, the median is; which position it has is not said."""
    if not x.dim():
        return NotImplemented
    value, position = _at(x, (x.shape[dim] - 1) // 2, dim, keepdim)
    if x.is_floating_point():
        value = torch.where(aten.any.dim(x != x, dim, keepdim), torch.full_like(value, torch.nan), value)
    return value, position


def _median(x: Any) -> Any:
    return _median_of_dim(x.reshape(-1), 0)[0] if x.dim() else NotImplemented


def _at(x: Any, place: Any, dim: int, keepdim: bool) -> Any:
    found = (aten.select.int(part, dim, place) for part in aten.sort.default(x, dim))
    return tuple(part.unsqueeze(dim % x.dim()) if keepdim else part for part in found)
