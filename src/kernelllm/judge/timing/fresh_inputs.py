"""Tells whether a run is as fast on inputs that the candidate never saw as on the timed ones, which come again and again.

Results can be kept without fewer launches: a kernel may compare its inputs with earlier ones, and copy what it computed for them.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from typing import Any, Protocol

from kernelllm.core.types import Finding

_PAIRS, _LONG_MS, _PAIRS_IF_LONG = 5, 10.0, 3
_FACTOR, _SLACK_MS = 1.3, 0.01
"""Times of one run of a kernel differ by far less."""
_TRIES = 3
_ENOUGH = 2
"""The first pairs: without a difference in any, nothing is kept. Later ones may be alike by chance, where others use the GPU."""


class TimedTwice(Protocol):
    """The candidate in its worker, or the reference here."""

    def first_and_second(self, fresh: list[Any]) -> tuple[float, float] | None:
        """Milliseconds of the first and of the second run on these inputs; None where the host held one of them back."""
        ...


def kept_results(
    candidate: TimedTwice, draw: Callable[[int], list[Any]], median_ms: float, rng: random.Random, reference: TimedTwice | None = None
) -> list[Finding]:
    """A finding where the first run on new inputs takes far longer than the second, each time that it is tried. ``draw``: new inputs.

    Where sizes depend on values, libraries choose anew for each: a first run may take longer as far as the ``reference``'s does.
    """
    pairs = _PAIRS if median_ms < _LONG_MS else _PAIRS_IF_LONG
    for _ in range(_TRIES):
        seen: list[tuple[float, float]] = []
        for _ in range(pairs):
            if (pair := candidate.first_and_second(draw(rng.randrange(2**31)))) is not None:
                seen.append(pair)
            if len(seen) == _ENOUGH and all(first <= _FACTOR * second + _SLACK_MS for first, second in seen):
                return []
        if not seen:
            return []
        first, second = (statistics.median(times) for times in zip(*seen, strict=True))
        if first <= _FACTOR * second + _SLACK_MS:
            return []
    if reference is not None and first <= _FACTOR * _ratio(reference, draw, pairs, rng) * second + _SLACK_MS:
        return []
    text = f"On inputs that it never saw a run takes {first:.4g} ms, and {second:.4g} ms when the same inputs come again."
    why = "Results are kept, or kernels are compiled or tuned anew for each input: compute them in every call, with the same kernels."
    return [Finding(check="replay", message=f"{text} {why}")]


def _ratio(reference: TimedTwice, draw: Callable[[int], list[Any]], pairs: int, rng: random.Random) -> float:
    """How many times as long a first run takes as a second one; the median."""
    seen = [pair for _ in range(pairs) if (pair := reference.first_and_second(draw(rng.randrange(2**31)))) is not None]
    return max(1.0, statistics.median(first / max(second, 1e-6) for first, second in seen)) if seen else 1.0
