"""Reductions and scans by a function of the candidate's own, which Triton's interpreter does element by element.

The order of a scan is that of its elements. Reductions have none: a function that is not commutative and associative is wrong.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as ti

_OF_A_THREAD = 4
"""Elements that a thread has at least, where there are enough."""


def install() -> None:
    """Replace what combines by functions."""
    ti.ReduceOps.generic_reduce = _reduce
    ti.ScanOps.generic_scan = _scan


def _combine(self: Any, left: list[Any], right: list[Any], kinds: list[Any]) -> list[Any]:
    """One vectorised call of the user's combine function on tuples of arrays."""
    result = self.combine_fn.fn(*[self.to_tensor(d, k) for d, k in zip(left + right, kinds * 2, strict=True)])
    result = result if isinstance(result, tuple | list) else (result,)
    shape = left[0].shape
    out = []
    for value, old in zip(result, left, strict=True):
        data = value.handle.data if isinstance(value, tl.core.tensor) else np.asarray(value)
        out.append(np.broadcast_to(data.reshape(shape) if data.size == max(1, int(np.prod(shape))) else data, shape).astype(old.dtype))
    return out


def _reduce(self: Any, input: Any) -> list[Any]:
    """As threads do it, out of order: each its own elements one by one, then the threads' results in halves."""
    original_axis, shape = self.axis, input[0].handle.data.shape
    input, axis = self.unravel(input, self.axis)
    kinds = [arg.dtype for arg in input]
    data = [np.moveaxis(arg.handle.data, axis, 0) for arg in input]
    threads = data[0].shape[0] // _OF_A_THREAD
    if threads > 1:
        parts = [[d[at * threads : (at + 1) * threads] for d in data] for at in range(_OF_A_THREAD)]
        data = reduce(lambda left, right: _combine(self, left, right, kinds), parts)
    while (half := data[0].shape[0] // 2) > 0:  # blocks keep their full, power-of-two shape
        data = _combine(self, [d[:half] for d in data], [d[half:] for d in data], kinds)
    out = []
    for d, kind in zip(data, kinds, strict=True):
        value = d[0]
        if self.keep_dims:
            value = value.reshape([1] * len(shape)) if original_axis is None else np.expand_dims(value, axis)
        elif original_axis is None:
            value = value.item()
        out.append(self.to_tensor(value, kind))
    return out


def _scan(self: Any, input: Any) -> list[Any]:
    """Custom scans in log2(n) vectorised steps."""
    kinds = [arg.dtype for arg in input]
    data = [np.moveaxis(arg.handle.data, self.axis, 0).copy() for arg in input]
    step = 1
    while step < data[0].shape[0]:  # blocks keep their full, power-of-two shape
        joined = _combine(self, [np.roll(d, step, axis=0) for d in data], data, kinds)
        data = [np.concatenate([d[:step], j[step:]]) for d, j in zip(data, joined, strict=True)]
        step *= 2
    return [self.to_tensor(np.moveaxis(d, 0, self.axis), k) for d, k in zip(data, kinds, strict=True)]
