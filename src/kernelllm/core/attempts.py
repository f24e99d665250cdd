"""Questions to a list of attempts that several rooms ask, answered by one rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kernelllm.core.types import Attempt


def best(attempts: Iterable[Attempt]) -> Attempt | None:
    """The best correct attempt, None when none is correct.

    A measured one is better than one that was not measured, and a faster one than a slower one. Among equals the one whose own
    kernels do more of the work is better, then the earlier one.
    """
    return min((a for a in attempts if a.verdict.correct), key=_rank, default=None)


def _rank(attempt: Attempt) -> tuple[bool, float, float]:
    timing, coverage = attempt.verdict.timing, attempt.verdict.coverage
    return (timing is None, timing.candidate.median_ms if timing else 0.0, -(coverage or 0.0))


def stretches(samples: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending sample numbers as (first, count): [3, 4, 7] gives [(3, 2), (7, 1)]."""
    found: list[tuple[int, int]] = []
    for sample in samples:
        if found and sum(found[-1]) == sample:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((sample, 1))
    return found
