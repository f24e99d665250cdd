"""Sets of sizes in which one size is 1 or 0: a batch of one, one row, no row. No shrunk set has any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelllm.core.types import Problem
from kernelllm.problems import sizes
from kernelllm.problems.relations import DryRuns, Sizes, Slot, overridden, slots
from kernelllm.problems.trace import Trace


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
    return any(works(other) is not None for other in (value + 1, value - 1, 2 * value, value // 2) if other > 1)


def _of_batch(small: Trace, own: Trace) -> bool:
    """Whether the inputs that differ have one shape, or differ in their first dimension alone."""
    changed = [(a, b) for a, b in zip(small.inputs, own.inputs, strict=False) if a != b]
    return len({b for _, b in changed}) == 1 or all(a[1:] == b[1:] for a, b in changed)
