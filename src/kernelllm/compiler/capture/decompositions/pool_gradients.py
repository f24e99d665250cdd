"""Gradients of average pools with ``ceil_mode``, whose last windows may reach past the edge; Inductor divides by the whole window."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

aten = torch.ops.aten


def rules() -> dict[Any, Callable[..., Any]]:
    """Decompositions of the gradients of ``avg_pool2d`` and ``avg_pool3d``."""
    return {operator.default: _through_sums(operator.default) for operator in (aten.avg_pool2d_backward, aten.avg_pool3d_backward)}


def _through_sums(operator: Any) -> Callable[..., Any]:
    def rule(grad: Any, x: Any, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool,
             divisor_override: int | None = None) -> Any:
        """The gradient of sums over windows, of gradients divided by what each window holds: [*, outputs] to [*, sizes]."""
        if not ceil_mode or divisor_override is not None:
            return NotImplemented
        spatial = len(kernel)
        steps = list(stride) or list(kernel)
        sides = [_held(x.shape[d - spatial], grad.shape[d - spatial], kernel[d], steps[d], padding[d], count_include_pad, x.device)
                 for d in range(spatial)]  # fmt: skip
        held = math.prod(side.reshape(_along(d, spatial)) for d, side in enumerate(sides))
        return operator(grad / held.to(grad.dtype), x, kernel, stride, padding, True, True, 1)

    return rule


def _along(dim: int, spatial: int) -> Sequence[int]:
    return [-1 if d == dim else 1 for d in range(spatial)]


def _held(size: Any, count: Any, kernel: Any, stride: Any, padding: Any, count_include_pad: bool, device: Any) -> Any:
    """[count]: positions of each window along one dimension that count, as torch's documentation of AvgPool2d has it."""
    start = torch.arange(count, device=device) * stride - padding
    end = (start + kernel).clamp(max=size + padding)
    return end - start if count_include_pad else end.clamp(max=size) - start.clamp(min=0)
