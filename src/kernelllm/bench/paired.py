"""Two runs side by side: paired differences, problem by problem, with 95 % intervals over the shared problems."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from kernelllm.bench import metrics
from kernelllm.bench.metrics import Estimate, Outcome


class PairedProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One problem in both runs."""

    problem: str
    rates: tuple[float, float]
    """Share of correct samples."""
    speedups: tuple[float | None, float | None]
    """Best speed-up over the baseline."""


class PairedComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Second run against first: positive differences and ratios above 1 favour the second."""

    baseline: str
    pairs: tuple[PairedProblem, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    pass_at_1: Estimate | None
    """Mean difference of pass@1."""
    solved: Estimate | None
    """Mean difference of the share of solved problems (fast_0)."""
    faster: Estimate | None
    """Mean difference of fast_1."""
    speed: Estimate | None
    """Geometric mean of second / first speed-up, over problems that both solved with a time."""
    gained: tuple[str, ...]
    """Problems that only the second solved."""
    lost: tuple[str, ...]
    """Problems that only the first solved."""


def compare(first: Sequence[Outcome], second: Sequence[Outcome], baseline: str = "eager") -> PairedComparison:
    """Pair the outcomes of two runs by problem name; problems that only one has are listed, not scored."""
    left, right = {o.problem: o for o in first}, {o.problem: o for o in second}
    shared = [name for name in left if name in right]
    couples = [(left[name], right[name]) for name in shared]
    pairs = tuple(_pair(a, b, baseline) for a, b in couples)
    logs = [math.log(p.speedups[1] / p.speedups[0]) for p in pairs if p.speedups[0] and p.speedups[1]]
    ratio = metrics.mean_estimate(logs)
    return PairedComparison(
        baseline=baseline,
        pairs=pairs,
        only_first=tuple(n for n in left if n not in right),
        only_second=tuple(n for n in right if n not in left),
        pass_at_1=metrics.mean_estimate([p.rates[1] - p.rates[0] for p in pairs]),
        solved=metrics.mean_estimate([float((b.c > 0) - (a.c > 0)) for a, b in couples]),
        faster=metrics.mean_estimate([metrics.fast_p([b], 1.0, baseline) - metrics.fast_p([a], 1.0, baseline) for a, b in couples]),
        speed=ratio and Estimate(math.exp(ratio.value), math.exp(ratio.low), math.exp(ratio.high), ratio.problems),
        gained=tuple(b.problem for a, b in couples if b.c and not a.c),
        lost=tuple(a.problem for a, b in couples if a.c and not b.c),
    )


def _pair(a: Outcome, b: Outcome, baseline: str) -> PairedProblem:
    return PairedProblem(problem=a.problem, rates=(a.rate, b.rate), speedups=(a.best(baseline), b.best(baseline)))
