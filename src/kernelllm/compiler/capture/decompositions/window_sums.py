"""Sums of overlapping windows (the gradient of ``unfold``, ``istft``): each place gathers what the windows over it hold.

torch's own rule adds up one element of all windows after the other, in as many operators as a window is long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

aten = torch.ops.aten
_WRITTEN_OUT = 8
"""Up to so many windows over a place are terms of one sum; more are a dimension that is summed over."""


def unfold_backward(grad: torch.Tensor, input_sizes: Sequence[Any], dim: int, size: Any, step: Any) -> torch.Tensor:
    if not input_sizes:
        return grad.reshape(())
    dim %= len(input_sizes)
    count, length = grad.shape[dim], input_sizes[dim]
    windows = grad.movedim(dim, -2).flatten(-2)  # [..., window * size + place in it]
    places = torch.arange(length, device=grad.device)
    last = places // step
    overlap = (size + step - 1) // step

    def held(back: Any, last: Any, places: Any) -> Any:
        """What the window that many before the last one that begins there has for each place."""
        window = last - back
        offset = places - window * step
        inside = (window >= 0) & (window < count) & (offset < size)
        values = windows[..., torch.where(inside, window * size + offset, 0)]
        return torch.where(inside, values.float() if grad.dtype in (torch.float16, torch.bfloat16) else values, 0)

    if isinstance(overlap, int) and overlap <= _WRITTEN_OUT:
        total = held(overlap - 1, last, places)
        for back in reversed(range(overlap - 1)):
            total = total + held(back, last, places)
    else:
        total = held(torch.arange(overlap, device=grad.device), last[:, None], places[:, None]).sum(-1)
    summed: torch.Tensor = total.to(grad.dtype).movedim(-1, dim).contiguous()
    return summed


OPERATORS: dict[Any, Callable[..., Any]] = {aten.unfold_backward.default: unfold_backward}
__all__ = ["OPERATORS"]
