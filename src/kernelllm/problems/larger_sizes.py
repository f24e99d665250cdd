"""Finds sizes of a problem beyond all that were tried, and beyond its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelllm.core.types import Problem
from kernelllm.problems import sizes
from kernelllm.problems.relations import DryRuns, overridden, slots

_FLOPS, _WORK = 4_000_000_000, 2**26


_FEW, _MANY = 16, 64
"""What the other sizes become, where they are more, so that one may be longer."""


def larger(problem: Problem, tried: Sequence[Mapping[str, Any]], elements: int, *, few: bool = False) -> dict[str, Any] | None:
    """The sizes of the first set with one of them so large that the largest input has about so many elements; None where none works.
    ``few``: the others are small."""
    known = sizes.constants(problem)
    original = dict(slots(known))
    sets = [dict(slots({**known, **overrides})) for overrides in tried]
    varying = [slot for slot, value in original.items() if any(one[slot] != value for one in sets)]
    start = {slot: _FEW if few and slot in varying and value > _MANY else value for slot, value in sets[0].items()}
    dry_runs = DryRuns(problem)
    own = dry_runs.works(overridden(problem, original, start))
    for slot in varying if own is not None else ():
        largest = max((_elements(shape) for shape in own.inputs), default=1) if own is not None else 1
        overrides = overridden(problem, original, {**start, slot: start[slot] * max(elements // max(largest, 1), 1)})
        trace = dry_runs.works(overrides)
        if trace is None or not trace.ran or trace.flops > _FLOPS or trace.work > _WORK:
            continue
        if max((_elements(shape) for shape in trace.inputs), default=0) > elements // 2:
            return overrides
    return None


def longest(problem: Problem, overrides: Mapping[str, Any]) -> int:
    """The largest of a problem's sizes with these values."""
    return max((value for _, value in slots({**sizes.constants(problem), **overrides})), default=0)


def _elements(shape: Sequence[int]) -> int:
    product = 1
    for length in shape:
        product *= length
    return product
