"""Sums of overlapping windows (``fold``, gradients of ``unfold``, ``istft``): each place gathers what the windows over it hold.

torch's own rules add up one element of all windows after the other, in as many operators as a window is long, or all by atomics.
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


class _Axis:
    """Where the windows over each place of one dimension of an image have it."""

    def __init__(self, length: Any, size: Any, dilation: Any, padding: Any, step: Any, device: Any) -> None:
        self.size, self.dilation, self.step = size, dilation, step
        self.count = (length + 2 * padding - dilation * (size - 1) - 1) // step + 1
        self.places = torch.arange(length, device=device) + padding
        self.dense = isinstance(dilation, int) and dilation == 1
        self.overlap = (size + step - 1) // step if self.dense else size
        """How many windows may be over a place; with a dilation, how many taps a window has."""

    def held(self, back: Any, rank: int, dim: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The window, its tap and whether there are such, for each place along ``dim`` of ``rank``."""
        places = self.places.view([-1 if d == dim else 1 for d in range(rank)])
        if self.dense:
            window = places // self.step - back
            tap = places - window * self.step
            inside = (window >= 0) & (window < self.count) & (tap < self.size)
        else:
            tap, start = torch.zeros_like(places) + back, places - back * self.dilation
            window = start // self.step
            inside = (start >= 0) & (window < self.count) & (start == window * self.step)
        return torch.where(inside, window, 0), torch.where(inside, tap, 0), inside


def fold(columns: torch.Tensor, output_size: Sequence[Any], kernel_size: Sequence[Any], dilation: Sequence[Any],
         padding: Sequence[Any], stride: Sequence[Any]) -> torch.Tensor:
    batched = columns.dim() == 3
    values = columns if batched else columns.unsqueeze(0)
    sizes = zip(output_size, kernel_size, dilation, padding, stride, strict=True)
    rows, across = (_Axis(*numbers, columns.device) for numbers in sizes)
    torch._check(values.shape[2] == rows.count * across.count, lambda: "fold: the columns are not as many as windows fit in")
    values = values.reshape(values.shape[0], -1, *kernel_size, rows.count, across.count)
    wide = columns.dtype in (torch.float16, torch.bfloat16)

    def held(down: Any, right: Any, rank: int) -> Any:
        y, i, top = rows.held(down, rank, 0)
        x, j, left = across.held(right, rank, 1)
        found = values[:, :, i, j, y, x]
        return torch.where(top & left, found.float() if wide else found, 0)

    if all(isinstance(axis.overlap, int) for axis in (rows, across)) and rows.overlap * across.overlap <= _WRITTEN_OUT + 1:
        pairs = [(down, right) for down in range(rows.overlap) for right in range(across.overlap)]
        total = held(*pairs[0], 2)
        for pair in pairs[1:]:
            total = total + held(*pair, 2)
    else:
        down = torch.arange(rows.overlap, device=columns.device).view(1, 1, -1, 1)
        total = held(down, torch.arange(across.overlap, device=columns.device), 4).sum((-2, -1))
    image: torch.Tensor = total.to(columns.dtype)
    return image if batched else image.squeeze(0)


OPERATORS: dict[Any, Callable[..., Any]] = {aten.unfold_backward.default: unfold_backward, aten.col2im.default: fold}
__all__ = ["OPERATORS"]
