"""Sets of sizes at which what is asked of an input's shape has another answer than at all that were tried."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kernelllm.core.types import Problem
from kernelllm.problems import sizes
from kernelllm.problems.relations import DryRuns, Sizes, Slot, overridden, slots
from kernelllm.problems.smallest_sizes import affordable
from kernelllm.problems.trace import Trace

_SIZES, _PAIRS = 300, 12_000
"""Values of one size that are asked, and pairs of two."""
_PARAMETERS = 6
"""Parameters whose shapes are asked of as well."""
_ELEMENTS = 200_000
_TRIES = 6
"""Sets that answer otherwise and are looked at."""
Asked = Callable[[tuple[int, ...]], bool | None]
_Dims = dict[Slot, list[tuple[int, int]]]
"""Size to the dimensions of an input that it sets, each with what it is multiplied by."""


def sets_of_other_branches(
    problem: Problem, tried: Sequence[Mapping[str, Any]], asked: Sequence[tuple[Asked, tuple[int, ...]]], most: int
) -> list[dict[str, Any]]:  # fmt: skip
    """Up to ``most`` sets, in which one or two sizes of the first set ``tried`` are others. ``asked``: with lengths to look at first."""
    known = sizes.constants(problem)
    original = dict(slots(known))
    sets = [dict(slots({**known, **overrides})) for overrides in tried]
    dry_runs, found = DryRuns(problem), list[dict[str, Any]]()
    varying = [slot for slot, value in original.items() if any(one[slot] != value for one in sets)]
    traces = [trace for overrides in ({}, *tried) if (trace := dry_runs.works(overrides)) is not None]
    first = dry_runs.works(tried[0])
    if first is None or not varying:
        return []
    known_shapes = set[tuple[int, ...]]()
    for place, shape in enumerate(_shapes(first)):
        if shape in known_shapes:
            continue
        known_shapes.add(shape)
        dims = _dimensions(dry_runs, original, sets[0], varying, place)
        shapes = [_shapes(trace)[place] for trace in traces if place < len(_shapes(trace))]
        for question, hints in asked:
            answers = {question(one) for one in shapes}
            if len(answers) != 1 or None in answers:
                continue
            changes = itertools.islice(_changes(dims, shape, question, not answers.pop(), hints), _TRIES)
            made = (overridden(problem, original, {**sets[0], **values}) for values in changes)
            found += [one for one in made if one not in found and affordable(dry_runs, one)][:1]
            if len(found) == most:
                return found
    return found


def _dimensions(dry_runs: DryRuns, original: Sizes, start: Sizes, varying: Sequence[Slot], place: int) -> _Dims:
    """What dimensions of the input or parameter each size sets."""
    own = dry_runs.works(overridden(dry_runs.problem, original, start))
    found: _Dims = {}
    for slot in varying if own is not None else ():
        for value in (start[slot] + 1, 2 * start[slot]):
            trace = dry_runs.works(overridden(dry_runs.problem, original, {**start, slot: value}))
            before, after = _at(own, place), _at(trace, place)
            if before is None or after is None or len(before) != len(after):
                continue
            pairs = enumerate(zip(before, after, strict=True))
            set_by = [(dim, a // start[slot]) for dim, (a, b) in pairs if a != b and a % start[slot] == 0 and b == a // start[slot] * value]
            if set_by:
                found[slot] = set_by
                break
    return found


def _shapes(trace: Trace) -> tuple[tuple[int, ...], ...]:
    return (*trace.inputs, *trace.parameters[:_PARAMETERS])


def _at(trace: Trace | None, place: int) -> tuple[int, ...] | None:
    shapes = () if trace is None else _shapes(trace)
    return shapes[place] if place < len(shapes) else None


def _changes(dims: _Dims, shape: tuple[int, ...], question: Asked, wanted: bool, hints: tuple[int, ...]) -> Iterator[Sizes]:
    """Other values of one size or of two at which a shape like this has the answer that is wanted."""

    def made(values: Sizes) -> tuple[int, ...]:
        lengths = list(shape)
        for slot, value in values.items():
            for dim, times in dims[slot]:
                lengths[dim] = value * times
        return tuple(lengths)

    for slot in dims:
        for value in (*hints, *range(2, _SIZES)):
            if question(made({slot: value})) is wanted:
                yield {slot: value}
    draw = random.Random(7)
    for one, other in itertools.combinations(dims, 2):
        pairs = [*itertools.product(hints, hints), *((draw.randrange(2, _SIZES), draw.randrange(2, _SIZES)) for _ in range(_PAIRS))]
        for pair in pairs:
            values = dict(zip((one, other), pair, strict=True))
            if math.prod(lengths := made(values)) <= _ELEMENTS and question(lengths) is wanted:
                yield values
