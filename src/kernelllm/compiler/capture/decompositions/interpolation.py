"""Interpolation as eager computes it.

Linear: neighbours times their weights. torch's own decomposition adds the weighted difference of two neighbours to the first, which is NaN
between two that are infinite, as activations in float16 are where they overflow.

Nearest: by the scale that the module gives. torch's own decomposition divides the size by its multiple, which is another number in a kernel
that has the size in float32.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decompositions

from kernelllm.compiler.capture.least_sizes import at_least
from kernelllm.compiler.capture.patching import patch


def patched(stack: ExitStack) -> None:
    """Put this file's rules in the place of torch's decompositions until ``stack`` closes."""
    patch(stack, decompositions, "_upsample_linear", _rule())
    patch(stack, decompositions, "_compute_upsample_nearest_indices", _nearest)


def _not_empty(x: Tensor, output_size: Sequence[int]) -> None:
    for size in (*x.shape[1:], *output_size):
        at_least(size, 1)


def _nearest(x: Tensor, output_size: Sequence[int], scales: Sequence[float | None], exact: bool = False) -> list[Tensor]:
    """For each spatial dimension the element that each output takes, to be broadcast with those of the others."""
    _not_empty(x, output_size)
    found, dims = [], len(output_size)
    for d, (out, scale) in enumerate(zip(output_size, scales, strict=True)):
        step = decompositions._compute_scale(x.shape[d - dims], out, False, scale)
        at = torch.arange(out, dtype=torch.float32, device=x.device)
        index = ((at + 0.5 if exact else at) * step).to(torch.int64)
        found.append(index.reshape(index.shape[0], *[1] * (dims - 1 - d)))
    return found


def _rule() -> Callable[..., Tensor]:
    """A stand-in for torch's decomposition of input [N, C, *S], with one output size and one scale (or None) a spatial dimension."""
    plain = decompositions._upsample_linear

    def interpolated(input: Tensor, output_size: Sequence[int], align_corners: bool, scales: Sequence[float | None]) -> Tensor:
        _not_empty(input, output_size)
        if not input.is_floating_point():
            whole: Tensor = plain(input, output_size, align_corners, scales)
            return whole
        found: Tensor = decompositions.pw_cast_for_opmath(_linear)(input, output_size, align_corners, scales)
        return found

    return interpolated


def _linear(x: Tensor, output_size: Sequence[int], align_corners: bool, scales: Sequence[float | None]) -> Tensor:
    sizes = x.shape[2:]
    places = [_places(x, *dim, align_corners, len(sizes) - 1 - i) for i, dim in enumerate(zip(sizes, output_size, scales, strict=True))]
    values = []
    for corner in itertools.product((0, 1), repeat=len(sizes)):
        index: list[Any] = [None, None, *(place[upper] for place, upper in zip(places, corner, strict=True))]
        values.append(torch.ops.aten._unsafe_index(x, index))
    for _, _, weight in reversed(places):
        values = [a * (1 - weight) + b * weight for a, b in zip(values[::2], values[1::2], strict=True)]
    few = x.device.type == "cuda" and x.shape[1] < 16
    layout = torch.contiguous_format if few else torch._prims_common.suggest_memory_format(x)
    found: Tensor = values[0].contiguous(memory_format=layout)
    return found


def _places(x: Tensor, size: int, out: int, scale: float | None, align_corners: bool, behind: int) -> tuple[Tensor, Tensor, Tensor]:
    """The lower and the upper neighbour of each output of one dimension, and the upper one's weight; ``behind``: dimensions that follow."""
    step = decompositions._compute_scale(size, out, align_corners, scale)
    at = decompositions._compute_source_index(step, torch.arange(out, device=x.device).to(x.dtype), align_corners).clamp(min=0.0)
    at = at.reshape(at.shape[0], *[1] * behind)
    lower = at.to(torch.int64)
    return lower, (lower + 1).clamp(max=size - 1), (at - lower).clamp(0.0, 1.0).to(x.dtype)
