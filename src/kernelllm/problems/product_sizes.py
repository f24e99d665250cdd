"""Sets of sizes at which a product of neighbouring dimensions of an input, such as rows * columns or heads * width, is a number wanted."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kernelllm.core.types import Problem
from kernelllm.problems import sizes
from kernelllm.problems.relations import DryRuns, Slot, overridden, slots
from kernelllm.problems.smallest_sizes import affordable, gaps
from kernelllm.problems.trace import Trace

_SMALL = 16
"""What is no product of sizes."""
_TRIES = 24
"""Dry runs of sets that may give such a product."""


def sets_of_products(
    problem: Problem, tried: Sequence[Mapping[str, Any]], bounds: Sequence[int], exact: Sequence[tuple[int, int]], most: int
) -> list[dict[str, Any]]:
    """Up to ``most`` sets in which such a product lies between two of ``bounds`` that none lies between in the sets ``tried``, or is one of
    ``exact``, as (0, number). One size of the first set changes, or two."""
    known = sizes.constants(problem)
    original = dict(slots(known))
    sets = [dict(slots({**known, **overrides})) for overrides in tried]
    varying = [slot for slot, value in original.items() if any(one[slot] != value for one in sets)]
    dry_runs, found = DryRuns(problem), list[dict[str, Any]]()
    traces = [trace for overrides in ({}, *tried) if (trace := dry_runs.works(overrides)) is not None]
    first, tries = dry_runs.trace(tried[0]), 0
    for place in _places(first):
        taken = {product for trace in traces for product in [_product(trace, place)] if product}
        numbers = [n for by, n in exact if not by and n > _SMALL and n not in taken]
        wanted = [*map(_equal, numbers), *(_between(*gap) for gap in gaps(taken, bounds))]
        for middle, fits in wanted:
            if any(fits(_product(dry_runs.trace(one), place)) for one in found):
                continue
            for changed in _changes({slot: sets[0][slot] for slot in varying}, middle, _product(first, place)):
                overrides = overridden(problem, original, {**sets[0], **changed})
                tries += 1
                if tries > _TRIES or len(found) == most:
                    return found
                trace = dry_runs.works(overrides)
                if trace is not None and fits(_product(trace, place)) and affordable(dry_runs, overrides):
                    found.append(overrides)
                    break
    return found


_Wanted = tuple[int, Callable[[int], bool]]
_Place = tuple[int, int, int]
"""An input, and the first of its dimensions and the one behind the last."""


def _equal(number: int) -> _Wanted:
    return number, lambda product: product == number


def _between(low: int, high: int) -> _Wanted:
    return (low + high) // 2, lambda product: low < product <= high


def _places(trace: Trace) -> list[_Place]:
    """Two and more neighbouring dimensions of inputs, each of more than one element: the last ones first, and few of them."""
    found = [
        (number, start, stop) for number, shape in enumerate(trace.inputs) for stop in range(2, len(shape) + 1) for start in range(stop - 1)
    ]  # fmt: skip
    known: dict[tuple[int, ...], _Place] = {}
    for number, start, stop in sorted(found, key=lambda p: (len(trace.inputs[p[0]]) - p[2], p[2] - p[1])):
        if 1 not in (lengths := trace.inputs[number][start:stop]):
            known.setdefault(lengths, (number, start, stop))
    return list(known.values())


def _product(trace: Trace, place: _Place) -> int:
    """The product of the lengths at a place of an input; 0 where the input has no such dimensions."""
    number, start, stop = place
    shape = trace.inputs[number] if number < len(trace.inputs) else ()
    return math.prod(shape[start:stop]) if len(shape) >= stop else 0


def _changes(own: Mapping[Slot, int], wanted: int, product: int) -> Iterator[dict[Slot, int]]:
    """What sizes may become so that ``product`` is ``wanted``, or nearly so: one size that is in it once or twice, or two."""
    for slot, size in own.items():
        lengths = [wanted * size // product] if product % size == 0 else []
        lengths += [math.isqrt(wanted * size * size // product)] if product % (size * size) == 0 else []
        yield from ({slot: length} for length in lengths if length not in (size, 0, 1))
    for (one, size), (other, times) in itertools.combinations(own.items(), 2):
        rest, left = divmod(product, size * times)
        if left == 0 and rest and wanted % rest == 0:
            divisors = [d for d in range(2, 4 * size) if (wanted // rest) % d == 0 and d < wanted // rest]
            yield from ({one: d, other: wanted // rest // d} for d in sorted(divisors, key=lambda d: abs(d - size))[:1])
