"""Tells whether what a decision put far off is something that rounding decides: some run under more rounding must put it off, too.

A spike, a code or a chosen row is right or wrong by a whole step. A few may differ where rounding decides, and no small number of
runs shows which. Under several times as much rounding all decisions within its reach turn over every other time, and no others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from kernelllm.judge.trials.comparison.compare import Expected, Rules, tolerance_for
from kernelllm.judge.trials.comparison.same_computation import same_shapes
from kernelllm.problems import nested

_STEPS, _OF_RMS = 32.0, 0.25
"""An element is far off by so many times what is allowed, and by such a share of the output's rms: no rounding of it alone."""
_RUNS = 16
"""Of fewer nothing can be said."""
_AS_FAR = 0.5
"""A run puts it off as well where it is off by such a share there."""


def far_off_without_reason(value: Any, runs: Iterable[Any], expected: Expected, rules: Rules) -> int:
    """How many elements of an output are far off that are right in all of ``runs``: outputs of the types of ``expected.value``."""
    if not same_shapes(value, expected.value):
        return 0
    right = expected.exact if expected.has_exact else expected.value
    pairs = zip(nested.tensors(value), nested.tensors(expected.value), nested.tensors(right), strict=True)
    left = [_far_off(mine, eager, exact, rules) for mine, eager, exact in pairs]
    whole = [exact if t.is_floating_point() else t for t, exact in zip(nested.tensors(expected.value), nested.tensors(right), strict=True)]
    tried = 0
    for tried, one in enumerate(runs, 1):  # noqa: B007
        if not any(bool(off.any()) for off in left):
            return 0
        left = [_still(off, theirs, exact) for off, theirs, exact in zip(left, nested.tensors(one), whole, strict=True)]
    return sum(int((off > 0).sum()) for off in left) if tried >= _RUNS else 0


def _far_off(mine: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, rules: Rules) -> torch.Tensor:
    """How far off each element is that is far off, else 0."""
    if not eager.is_floating_point() or eager.itemsize == 1:
        return torch.zeros(eager.shape) if eager.is_complex() else (mine != eager).double()
    rules, wide = rules.of(eager), exact.double()
    off, rms = (mine.double() - wide).abs().nan_to_num(0.0, 0.0, 0.0), float(wide.nan_to_num(0.0, 0.0, 0.0).square().mean().sqrt())
    allowed = rules.absolute(eager.dtype, rms) + tolerance_for(eager.dtype, rules.tolerance) * wide.abs().nan_to_num(0.0, 0.0, 0.0)
    return torch.where((off > _STEPS * allowed) & (off > _OF_RMS * rms), off, 0.0)


def _still(off: torch.Tensor, theirs: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    if theirs.is_complex() or not bool(off.any()):
        return off
    apart = (nested.computable(theirs).double() - nested.computable(exact).double()).abs().nan_to_num(torch.inf)
    return torch.where(apart >= _AS_FAR * off, 0.0, off)
