"""Hints to the compiler (``tl.multiple_of``, ``tl.max_contiguous``) must be true: compiled code vectorises loads and stores by them.

Left alone is what everybody writes and no GPU minds: indices that wrap at a size or stay at a bound, in lanes whose results are dropped,
and multiples beyond the widest access.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl

from kernelllm.backends.base import IllegalAccess

_WIDEST = 16
"""Bytes that one access takes at most, and so its elements."""


def install(builder: Any) -> None:
    """Look at ``tl.multiple_of``, ``tl.max_contiguous``, ``tl.max_constancy`` and ``tl.assume``."""
    for name, broken in (("multiple_of", _not_multiples), ("max_contiguous", _not_contiguous), ("max_constancy", _not_constant)):
        looked_at = _claim(name, broken)
        setattr(tl, name, looked_at)
        setattr(tl.core, name, looked_at)
    builder.create_assume = _assume


def _assume(self: Any, condition: Any) -> None:
    if not np.all(condition.data):
        raise IllegalAccess("a false hint: tl.assume is told what does not hold, and a compiled kernel relies on it. Assume what is so at "
                            "every size.")  # fmt: skip


def _claim(name: str, broken: Callable[[Any, int, int], Any]) -> Callable[..., Any]:
    """The language's function; ``broken`` tells which of lines of values, a step between neighbours and a claimed number are not so."""

    def claim(input: Any, values: Any, **options: Any) -> Any:
        if not isinstance(input, tl.tensor):  # a constant
            return input
        values = [getattr(v, "value", v) for v in (values if isinstance(values, list | tuple | tl.tuple) else [values])]
        shape = input.shape
        if len(values) != max(1, len(shape)):
            raise ValueError(f"len(values) != len(input.shape) for {name}")
        data = input.handle.data
        whole = data.view(np.int64) if data.dtype == np.uint64 else data.astype(np.int64)
        element = input.dtype.element_ty.primitive_bitwidth // 8 if input.dtype.is_ptr() else 1
        for dim, value in enumerate(values):
            lines = np.moveaxis(whole, dim - len(shape), -1) if len(shape) else whole.reshape(-1, 1)
            wrong = broken(lines, max(1, element), math.gcd(value, _WIDEST))
            if wrong.any():
                where = f" in dimension {dim}" if len(shape) > 1 else ""
                raise IllegalAccess(f"a false hint: tl.{name} says {value}{where}, which does not hold where the value is "
                                    f"{lines[wrong].flat[0]}. A compiled kernel makes wide, aligned accesses of it. Drop the hint, or "
                                    "give it what is so at every size.")  # fmt: skip
        return input

    return claim


def _steps(lines: Any) -> Any:
    """From the neighbour before; that of a first value is 0."""
    return np.diff(lines, axis=-1, prepend=lines[..., :1])


def _not_multiples(lines: Any, one: int, number: int) -> Any:
    """Runs of neighbours count by their first value."""
    steps = _steps(lines)
    begins = (steps != 0) & (steps != one)
    begins[..., 0] = True
    return begins & (lines % number != 0)


def _within(lines: Any, number: int) -> Any:
    """Whether a value has a neighbour before it in its group of so many."""
    return np.arange(lines.shape[-1]) % number != 0


def _not_contiguous(lines: Any, one: int, number: int) -> Any:
    """A gap, values that fall, or equal ones between those that rise."""
    steps = _steps(lines)
    rises, falls = steps == one, steps < 0
    falls[..., 1:] &= falls[..., :-1]
    falls[..., 0] = False
    before = np.logical_or.accumulate(rises, axis=-1)
    after = np.logical_or.accumulate(rises[..., ::-1], axis=-1)[..., ::-1]
    gaps = (steps > 0) & ~rises
    return (gaps | falls | ((steps == 0) & before & after)) & _within(lines, number)


def _not_constant(lines: Any, one: int, number: int) -> Any:
    return (_steps(lines) != 0) & _within(lines, number)
