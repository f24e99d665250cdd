"""Excuses parts of an output that another rounding of the reference flips, such as one head of many whose few numbers are normalised."""

from __future__ import annotations

from typing import Any

import torch

from kernelllm.judge.trials.comparison.compare import Expected, Rules, tolerance_for
from kernelllm.judge.trials.comparison.error_sums import EAGER_FACTOR
from kernelllm.judge.trials.comparison.same_computation import distance, finite, same_shapes
from kernelllm.problems import nested

_PART = 0.5
"""Share of an output that may be turned over, and times its norm that it may be off then."""


def partly_off(value: Any, expected: Expected) -> bool:
    """Whether an output is off in a part of it alone, or by little: by less than half of its norm, and finite."""
    if not finite(value) or not same_shapes(value, expected.value):
        return False
    pairs = zip(nested.tensors(value), nested.tensors(expected.exact), strict=True)
    return all(distance(mine, right) <= _PART for mine, right in pairs if mine.is_floating_point())


def excuse_flips(value: Any, other: Any, expected: Expected, rules: Rules) -> Any:
    """``value`` with the reference's own numbers where ``other``, the reference under another rounding, is off by more than the tolerance,
    and ``value`` by no more than twice what ``other`` is at most."""
    parts = zip(*(nested.tensors(one) for one in (other, expected.value, expected.exact)), strict=True)

    def mended(mine: torch.Tensor) -> torch.Tensor:
        theirs, eager, exact = next(parts)
        if not mine.is_floating_point() or mine.dtype.itemsize == 1:
            return mine
        right = exact.double()
        off, tolerance = (theirs.double() - right).abs(), tolerance_for(eager.dtype, rules.tolerance)
        allowed = rules.absolute(eager.dtype, float(right.square().mean().sqrt())) + tolerance * right.abs()
        excused = (off > allowed) & ((mine.double() - right).abs() <= EAGER_FACTOR * off.max())
        return torch.where(excused, eager, mine)

    return nested.mapped(value, mended)


def few_flips(settled_value: Any, value: Any) -> bool:
    """Whether no more than half of each tensor was settled."""
    pairs = zip(nested.tensors(settled_value), nested.tensors(value), strict=True)
    return all(int((nested.computable(left) != nested.computable(mine)).sum()) <= _PART * mine.numel() for left, mine in pairs)
