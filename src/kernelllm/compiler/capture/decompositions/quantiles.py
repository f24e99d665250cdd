"""Quantiles near an end of long rows of known length: the few elements beyond them are chosen, where all would be sorted."""

from __future__ import annotations

import math
from typing import Any

import torch

_LONG, _PART = 4096, 16
"""Elements of a row from which on, and the part of it up to which, choosing is faster than sorting."""
_SPARE = 2
"""A place is computed in float32, and may be off by one."""


def near_an_end(x: Any, q: Any, dim: Any, interpolation: str, out: Any) -> int:
    """How many elements are to be chosen, below zero for the smallest; 0 where the rows are sorted."""
    if not isinstance(q, float) or not 0 <= q <= 1 or interpolation != "linear" or out is not None or x.dim() == 0:
        return 0
    length = x.numel() if dim is None else x.shape[dim]
    if x.dtype != torch.float32 or not isinstance(length, int) or not _LONG <= length < 2**24:
        return 0
    above, below = length - math.floor(q * (length - 1)) + _SPARE, math.ceil(q * (length - 1)) + 1 + _SPARE
    kept = min(above, below)
    return 0 if kept > length // _PART else above if above <= below else -below


def of_chosen(x: Any, q: float, dim: Any, keepdim: bool, kept: int) -> Any:
    """The quantile, of as many of the largest, or of the smallest, elements of each row."""
    rows = x.flatten() if dim is None else x.movedim(dim, -1)
    length = rows.shape[-1]
    chosen = rows.topk(abs(kept), -1, largest=kept > 0)[0]  # NaN is the largest
    place = torch.full((), q, dtype=x.dtype, device=x.device) * (length - 1)
    below, above = place.floor(), place.ceil()

    def at(position: Any) -> Any:
        number = (length - 1 - position if kept > 0 else position).long().clamp(0, abs(kept) - 1)
        return chosen.index_select(-1, number.reshape(1)).squeeze(-1)

    nan = chosen[..., 0] != chosen[..., 0] if kept > 0 else (rows != rows).any(-1)
    found = torch.where(nan, torch.nan, torch.lerp(at(below), at(above), place - below))
    if not keepdim:
        return found
    return found.reshape([1] * x.dim()) if dim is None else found.unsqueeze(dim)


__all__ = ["near_an_end", "of_chosen"]
