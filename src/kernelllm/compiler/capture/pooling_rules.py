"""Rules for adaptive maxima that hold for sizes that vary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

aten = torch.ops.aten


def rules(table: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """The rules, by operator. ``table`` has Inductor's, which older versions of torch lack."""
    forward = (aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default)
    return {aten.adaptive_max_pool2d_backward.default: _unpooled(2), aten.adaptive_max_pool3d_backward.default: _unpooled(3),
            **{op: _adaptive_max_pool(table[op]) for op in forward if op in table}}


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
