"""Tells whether an output is one that the reference itself might have given, had it rounded otherwise.

Where a gradient, an argmax or a top-k hangs on the last bit of a number, no output in working precision is near to float64's, and none is
near to another. What all roundings leave alone must be right all the same; the rest may be off by what they are off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kernelllm.judge.trials.comparison.compare import FEW_TIES, Expected, Rules, compare, tolerance_for
from kernelllm.judge.trials.comparison.error_sums import EAGER_FACTOR, FEW
from kernelllm.judge.trials.comparison.same_computation import same_shapes
from kernelllm.problems import nested

_FEWEST = 6
"""Runs of which something can be said."""
_NOISE, _ZERO = 0.5, 1e6
"""A tensor that is off by a larger share of itself is not told from one that is made up, unless the right one is zero but for rounding.
All of an output's tensors but one may be so, where the reference's own runs are: gradients of a loss that hardly changes."""
_FURTHER, _ALONG = 1.4, 1.5
"""A run may be so many times as far off as the furthest of few others: each of many tensors has one that is the furthest."""
_ALIKE, _AS_EAGER = 1.6, 1.25
"""Where all runs are about as far off as each other, no decision is the cause but the rounding of all elements. They are rounded once more
than eager is, and a candidate is not: it may be so many times as far off as eager."""
_PLACES = 3
"""Places by which a further run may move a number along the last dimension, where other runs turn that place over."""
_SEVERAL = 16
"""Elements of which something can be said as a whole."""


def might_be_rerounded(value: Any, runs: Sequence[Any], expected: Expected, rules: Rules, *, seen: bool = False) -> bool:
    """``runs``: outputs of the reference under other roundings, of the types of ``expected.value``. ``seen``: some run must turn each
    element that is off; none is let be for those that a further run would turn."""
    if len(runs) < _FEWEST or not all(same_shapes(one, expected.value) for one in (value, *runs)):
        return False
    right = expected.exact if expected.has_exact else expected.value
    noisy, every = 0, sum(tensor.is_floating_point() for tensor in nested.tensors(expected.value))
    for mine, eager, exact, *others in zip(*(nested.tensors(one) for one in (value, expected.value, right, *runs)), strict=True):
        if compare(mine, Expected(eager, exact if expected.has_exact else None, expected.has_exact), rules).ok:
            continue
        if not eager.is_floating_point():
            fits = not eager.is_complex() and _whole_numbers_fit(mine, eager, [*others, exact], seen)
        else:
            share = _share_off(mine, eager, exact, others, rules, seen) if eager.dtype.itemsize > 1 else None
            fits, noisy = share is not None, noisy + (share is not None and share > _NOISE)
        if not fits or noisy >= every:
            return False
    return True


def _whole_numbers_fit(mine: torch.Tensor, eager: torch.Tensor, others: Sequence[torch.Tensor], seen: bool) -> bool:
    """Whether each number is one that some run gives in its place, but for as many as a further run may give that none gave so far: twice
    the share of those that one run alone changed (Good and Turing's estimate)."""
    wrong, changed = mine != eager, torch.stack([one != eager for one in others])
    known = torch.stack([one == mine for one in others]).any(0)
    if mine.dim():  # of numbers in an order, one more or less moves all behind it
        near = torch.stack([one.roll(by, -1) == mine for one in others for by in range(-_PLACES, _PLACES + 1)]).any(0)
        known |= near & changed.any(0)
    unseen = 0.0 if seen else EAGER_FACTOR * int((changed.sum(0) == 1).sum()) / len(others)
    unseen += unseen**0.5  # the estimate is a count, and varies as one
    few = int(wrong.sum()) <= max(EAGER_FACTOR * int(changed.flatten(1).sum(1).max()), FEW_TIES)
    return few and int((wrong & ~known).sum()) <= (unseen if unseen >= 1 else 0)


def _share_off(
    mine: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, others: Sequence[torch.Tensor], rules: Rules, seen: bool
) -> float | None:  # fmt: skip
    """By what share of itself the output is off; nothing where it is zero but for rounding, None where no rounding explains it."""
    right = exact.double()
    rules = rules.of(eager)
    tolerance = tolerance_for(eager.dtype, rules.tolerance)
    allowed = rules.absolute(eager.dtype, float(right.square().mean().sqrt())) + tolerance * right.abs()
    spread = _off(eager, right).abs()
    times, most, along, turned = torch.zeros_like(right, dtype=torch.int32), 0, 0.0, 0
    size, far = float(right.square().sum()), [float(spread.square().sum())]
    for one in others:
        off = _off(one, right)
        flipped = off.abs() > allowed
        spread, times, most = torch.maximum(spread, off.abs()), times + flipped, max(most, int(flipped.sum()))
        along, turned = max(along, abs(float((off * right).sum()))), turned + bool(flipped.any())
        far.append(float(off.square().sum()))
    off = mine.double() - right
    if not bool(torch.isfinite(off).all()):
        return None
    beyond = off.abs() > allowed
    unexplained = beyond & (off.abs() > allowed + EAGER_FACTOR * spread)
    unseen = 0.0 if seen else EAGER_FACTOR * int((times == 1).sum()) / max(turned, 1)  # runs that turn nothing round more finely
    apart = float(off.square().sum())
    fits = (
        int(beyond.sum()) <= max(EAGER_FACTOR * most, FEW_TIES if unseen >= 1 else 0)
        and int(unexplained.sum()) <= (unseen if unseen >= 1 else 0)
        and float(off.abs().max()) <= EAGER_FACTOR * float(spread.max()) + float(allowed.max())
        and apart <= _furthest(far, mine.numel(), rules)
        and (mine.numel() < _SEVERAL or abs(float((off * right).sum())) <= max(_ALONG * along, tolerance * size))
    )
    zero = max(far) >= _ZERO**2 * size
    return None if not fits else 0.0 if zero else (apart / size) ** 0.5


def _furthest(far: Sequence[float], elements: int, rules: Rules) -> float:
    """How far off an output may be as a whole, squared. ``far``: what eager is, then the runs."""
    eager, *runs = far
    if rules.far and elements >= FEW and max(runs) <= _ALIKE**2 * min(runs):
        return _AS_EAGER**2 * eager
    return _FURTHER**2 * max(far)


def _off(value: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Nothing where either is no number."""
    return (value.double() - right).nan_to_num(0.0, 0.0, 0.0)
