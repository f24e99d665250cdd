"""Sets of sizes with a 1 or a 0 (a batch of one, no row), or with a size between those of other sets."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from kernelllm.core.types import Problem
from kernelllm.problems import sizes
from kernelllm.problems.relations import Budget, DryRuns, Sizes, Slot, overridden, slots
from kernelllm.problems.trace import Trace

_ROUND = 64
"""What a size between others is a multiple of where the problem takes no odd one."""
_FEW, _MANY = 16, 64
"""What the other sizes become, where they are more and cost too much."""
_COUNTS = range(1, 9)
"""Sizes that are small enough to be a count of something: the sets that were tried all have the problem's own."""
_TIMES_THE_BUDGET = 12
"""So many times what a shrunk set may cost, a set with a size between others may."""


def sets_with(problem: Problem, tried: Sequence[Mapping[str, Any]], length: int) -> list[dict[str, Any]]:
    """For each size that is not the same in the problem and in all of the sets ``tried``, the first of these sets with that size at
    ``length``, 1 or 0.

    Sizes that only change together do so. Those at which the problem does not work are left out. At 0 so are those of weights, and of
    what tensors of different shapes share beside their first dimension: nobody convolves no channels, and torch makes odd things of it.
    """
    known = sizes.constants(problem)
    original = dict(slots(known))
    sets = [dict(slots({**known, **overrides})) for overrides in tried]
    varying = [slot for slot, value in original.items() if any(one[slot] != value for one in sets)]
    dry_runs = DryRuns(problem)
    groups: list[tuple[Slot, ...]] = []
    for slot in varying:
        equal = tuple(other for other in varying if original[other] == original[slot])
        found = next((slots_ for slots_ in ((slot,), equal) if _free(dry_runs, original, sets[0], slots_, length)), None)
        if found is not None and found not in groups:
            groups.append(found)
    return [overridden(problem, original, {**sets[0], **dict.fromkeys(group, length)}) for group in groups]


def sets_of_counts(problem: Problem, tried: Sequence[Mapping[str, Any]], fixed: frozenset[str], most: int) -> list[dict[str, Any]]:
    """Up to ``most`` sets in which a small size that is the same in the problem and all sets ``tried``, such as a number of heads, is
    another one, no power of two where it may; the others are those of the first set. Nothing else may change but shapes."""
    known = sizes.constants(problem)
    original = dict(slots(known))
    sets = [dict(slots({**known, **overrides})) for overrides in tried]
    dry_runs, found = DryRuns(problem), list[dict[str, Any]]()
    own = dry_runs.works(overridden(problem, original, sets[0]))
    for slot, value in original.items():
        if own is None or slot[0] in fixed or value not in _COUNTS or any(one[slot] != value for one in sets):
            continue
        for other in dict.fromkeys((value * 3 // 4, value + 1, value - 1, value * 2)):
            made = overridden(problem, original, {**sets[0], slot: other}) if other not in (0, value) else None
            trace = dry_runs.works(made) if made is not None else None
            if trace is None or made is None or len(trace.shapes) != len(own.shapes) or not affordable(dry_runs, made):
                continue
            if trace.inputs != own.inputs:
                found.append(made)
                break
        if len(found) == most:
            break
    return found


def sets_between(problem: Problem, tried: Sequence[Mapping[str, Any]], bounds: Sequence[int], most: int) -> list[dict[str, Any]]:
    """Up to ``most`` sets in which one size lies between two of ``bounds`` that no size in the sets ``tried`` lies between, nor the
    problem's own; the others are those of the first set. Sizes that only change together do so. Those that take long are left out."""

    def lengths(taken: set[int]) -> list[list[int]]:
        middles = [(low, (low + high) // 2, high) for low, high in gaps(taken, bounds)]
        return [[n for n in (middle | 1, middle // _ROUND * _ROUND) if low < n <= high] for low, middle, high in middles]

    return _sets_of(problem, tried, lengths, most)


def sets_outside(problem: Problem, tried: Sequence[Mapping[str, Any]], bounds: Sequence[int], most: int) -> list[dict[str, Any]]:
    """Likewise up to ``most`` sets in which one size lies beyond the next of ``bounds`` above all that were tried, by more than a block of
    it where that costs little, or below the next one under them."""

    def lengths(taken: set[int]) -> list[list[int]]:
        above = [[bound * 5 // 4 | 1, bound + 1, (bound // _ROUND + 1) * _ROUND] for bound in bounds if bound >= max(taken)][:1]
        below = [[n for n in (bound - 1, (bound - 1) // _ROUND * _ROUND) if n > 1] for bound in bounds if bound <= min(taken)][-1:]
        return above + below

    return _sets_of(problem, tried, lengths, most)


def sets_at(problem: Problem, tried: Sequence[Mapping[str, Any]], exact: Sequence[tuple[int, int]], most: int) -> list[dict[str, Any]]:
    """Up to ``most`` sets in which one size is one of ``exact``, of those that no size in the sets ``tried`` is: (0, number), or
    (divisor, remainder)."""

    def lengths(taken: set[int]) -> list[list[int]]:
        new = [(by, n) for by, n in exact if not any(size % by == n if by else size == n for size in taken)]
        return [[n if n > 1 else by + n, by + n] if by else [n] for by, n in new]

    return _sets_of(problem, tried, lengths, most)


def _sets_of(
    problem: Problem, tried: Sequence[Mapping[str, Any]], lengths: Callable[[set[int]], list[list[int]]], most: int
) -> list[dict[str, Any]]:
    """``lengths``: of what a size is in the sets tried, to lists of others, of each of which the first that works is taken."""
    known = sizes.constants(problem)
    original = dict(slots(known))
    sets = [dict(slots({**known, **overrides})) for overrides in tried]
    varying = [slot for slot, value in original.items() if any(one[slot] != value for one in sets)]
    small = {slot: min(one[slot] for one in sets) for slot in original} if len(sets) > 1 else sets[0]  # where the first set is large
    small = {slot: _FEW if slot in varying and value > _MANY else value for slot, value in small.items()}
    dry_runs, found = DryRuns(problem), list[dict[str, Any]]()
    asked = [[(slot, wanted) for wanted in lengths({original[slot], *(one[slot] for one in sets)})] for slot in varying]
    # by turns: many lengths of the first slot leave no room for those of others
    for slot, wanted in (one for several in itertools.zip_longest(*asked) for one in several if one is not None):
        equal = tuple(other for other in varying if original[other] == original[slot])
        tries = [dict.fromkeys(group, length) for group in ((slot,), equal) for length in wanted]
        made = [overridden(problem, original, {**others, **values}) for others in (sets[0], small) for values in tries]
        new = next((one for one in made if one not in found and affordable(dry_runs, one)), None)
        found += [] if new is None else [new]
        if len(found) == most:
            return found
    return found


def gaps(taken: set[int], bounds: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs of ``bounds``, one after the other, between which no number of ``taken`` lies; the second belongs to what is between."""
    low, high = min(taken), max(taken)
    edges = [bound for bound in bounds if low < bound < high]
    return [(a, b) for a, b in pairwise(edges) if not any(a < length <= b for length in taken)]


def affordable(dry_runs: DryRuns, overrides: Mapping[str, Any]) -> bool:
    """Whether the problem works with these constants, at not many times what a shrunk set costs."""
    trace, budget = dry_runs.works(overrides), Budget()
    if trace is None or not trace.ran:
        return False
    return max(trace.largest / budget.elements, trace.work / budget.work, trace.flops / budget.flops) <= _TIMES_THE_BUDGET


def _free(dry_runs: DryRuns, problem_sizes: Sizes, start: Sizes, group: tuple[Slot, ...], length: int) -> bool:
    """Whether the problem works with these sizes at ``length`` and at another value: only at 1 may a size be broadcast."""

    def works(value: int) -> Trace | None:
        return dry_runs.works(overridden(dry_runs.problem, problem_sizes, {**start, **dict.fromkeys(group, value)}))

    value = start[group[0]]
    small, own = works(length), works(value)
    if small is None or own is None or (small.inputs, small.parameters) == (own.inputs, own.parameters):
        return False
    if length == 0 and not (small.parameters == own.parameters and _of_batch(small, own)):
        return False
    others = (works(other) for other in (value + 1, value - 1, 2 * value, value // 2) if other > 1)
    return any(one is not None and (one.inputs, one.parameters) != (own.inputs, own.parameters) for one in others)


def _of_batch(small: Trace, own: Trace) -> bool:
    """Whether the inputs that differ have one shape, or differ in their first dimension alone."""
    changed = [(a, b) for a, b in zip(small.inputs, own.inputs, strict=False) if a != b]
    return len({b for _, b in changed}) == 1 or all(a[1:] == b[1:] for a, b in changed)
