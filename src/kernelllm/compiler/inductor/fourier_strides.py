"""Strides of a Fourier transform's result where sizes are symbols, for torch 2.11.

That version permutes the result to get them, which fails while a graph is lowered; later versions do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch

_MENDED = "2.12"
"""The first version that needs no help."""


def without_permuting(stack: ExitStack) -> None:
    """Until ``stack`` closes, strides are counted."""
    if torch.__version__ >= _MENDED:
        return
    from torch import _meta_registrations as meta

    stack.callback(setattr, meta, "_exec_fft", meta._exec_fft)
    meta._exec_fft = _counted


def _counted(out: torch.Tensor, of: torch.Tensor, sizes: Sequence[Any], dim: Sequence[int], *, forward: bool) -> torch.Tensor:
    """Dimensions that are transformed lie innermost, the others around them in the order in which they lay."""
    strides, placed, step = of.stride(), [0] * of.ndim, 1
    around = sorted((d for d in range(of.ndim) if d not in dim), key=lambda d: strides[d], reverse=True)
    for d in reversed([*around, *sorted(dim)]):
        placed[d] = step
        step = step * sizes[d]
    return torch.empty_strided(sizes, placed, dtype=out.dtype, device=out.device)
