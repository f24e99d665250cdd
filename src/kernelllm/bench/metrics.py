"""Scores: pass@k, fast_p, mean speed-ups and their confidence intervals. Pure functions of attempts.

Sources: pass@k is the unbiased estimator of Chen et al. 2021 (HumanEval), 1 - C(n-c, k) / C(n, k); fast_p
is KernelBench's (share of problems with a correct sample whose speed-up over the baseline is above p);
a sample of several rounds counts as its best version so far;
intervals are percentile bootstraps over problems (Efron 1979).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from kernelllm.core.types import Attempt, Status, best, conversations

PASS_K = (1, 5, 10, 20, 100)
FAST_P = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)


class Estimate(msgspec.Struct, frozen=True):
    """A figure with its 95 % interval over ``problems`` problems."""

    value: float
    low: float
    high: float
    problems: int


class Repairs(msgspec.Struct, frozen=True):
    """Versions of one round that follow a wrong one of the round before."""

    wrong: int
    """Wrong versions that a next one followed."""
    repaired: int
    """How many of those are correct."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """All samples of one problem, reduced to what the scores need. A sample of several rounds is solved once a version is correct."""

    problem: str
    statuses: tuple[Status, ...]
    speedups: dict[str, tuple[float | None, ...]] = {}
    """Baseline to speed-up of each sample, None where it was not measured or is not correct."""
    floor_percent: float | None = None
    """The share of the floor that the fastest correct sample reaches."""
    sol_score: float | None = None
    on_gpu: bool = False
    """Whether a sample ran on a GPU, correct or not."""
    tags: tuple[str, ...] = ()
    usd: float | None = None
    rounds: tuple[Outcome, ...] = ()
    """The same as it was after each round; empty where there is one alone."""
    repairs: tuple[Repairs, ...] = ()
    """What each round after the first made of the wrong versions of the round before."""

    def after(self, rounds: int) -> Outcome:
        """The outcome as it was after ``rounds`` rounds."""
        return self.rounds[min(rounds, len(self.rounds)) - 1] if self.rounds else self

    @property
    def n(self) -> int:
        """Samples drawn."""
        return len(self.statuses)

    @property
    def c(self) -> int:
        """Correct samples."""
        return sum(s is Status.CORRECT for s in self.statuses)

    @property
    def rate(self) -> float:
        """Share of correct samples; 0 for a problem with no sample at all."""
        return self.c / self.n if self.n else 0.0

    def best(self, baseline: str) -> float | None:
        """Best measured speed-up over a baseline among correct samples, None when there is none."""
        known = [s for s in self.speedups.get(baseline, ()) if s is not None]
        return max(known) if known else None


def outcomes(
    attempts: Iterable[Attempt], tags: Mapping[str, Sequence[str]] | None = None, problems: Iterable[str] = (), rounds: int = 1
) -> list[Outcome]:
    """Group attempts by problem, in order of first appearance; samples in order of their index.

    ``problems`` names those that were asked for: one that has no attempt gets an outcome with no sample, which counts as unsolved.
    ``rounds``: how many were asked for; there may be more.
    """
    grouped: dict[str, list[Attempt]] = {name: [] for name in problems}
    for attempt in attempts:
        grouped.setdefault(attempt.problem, []).append(attempt)
    known = tags or {}
    rounds = max([rounds, *(a.round + 1 for items in grouped.values() for a in items)])
    return [_with_rounds(name, items, tuple(known.get(name, ())), rounds) for name, items in grouped.items()]


def _with_rounds(name: str, items: list[Attempt], tags: tuple[str, ...], rounds: int) -> Outcome:
    whole = _outcome(name, items, tags)
    if rounds == 1:
        return whole
    after = tuple(_outcome(name, [a for a in items if a.round < r], tags) for r in range(1, rounds + 1))
    return msgspec.structs.replace(whole, rounds=after, repairs=tuple(_repairs(items, r) for r in range(1, rounds)))


def _repairs(items: list[Attempt], round_: int) -> Repairs:
    wrong = {a.candidate.sample for a in items if a.round == round_ - 1 and not a.verdict.correct}
    next_ones = [a for a in items if a.round == round_ and a.candidate.sample in wrong]
    return Repairs(len(next_ones), sum(a.verdict.correct for a in next_ones))


def counted_version(versions: Sequence[Attempt]) -> Attempt:
    """The version that counts of a conversation's: the best correct one, otherwise the last."""
    return best(versions) or versions[-1]


def _outcome(name: str, items: list[Attempt], tags: tuple[str, ...]) -> Outcome:
    samples = conversations(items)
    baselines = sorted({b for a in items if a.verdict.timing for b in a.verdict.timing.speedups})
    speedups = {b: tuple(_fastest(versions, b) for versions in samples) for b in baselines}
    chosen = best(items)
    fastest = chosen.verdict.timing if chosen else None
    costs = [a.cost.usd for a in items]
    return Outcome(
        problem=name,
        statuses=tuple(counted_version(versions).verdict.status for versions in samples),
        speedups=speedups,
        floor_percent=fastest.floor_percent if fastest else None,
        sol_score=fastest.sol_score if fastest else None,
        on_gpu=any(a.verdict.on_gpu for a in items),
        tags=tags,
        usd=sum(c for c in costs if c is not None) if costs and None not in costs else None,
    )


def _fastest(versions: Sequence[Attempt], baseline: str) -> float | None:
    """The largest speed-up of a correct version."""
    return max((s for a in versions if a.verdict.correct and (s := a.verdict.speedup(baseline)) is not None), default=None)


def pass_at_k(n: int, c: int, k: int) -> float:
    """1 - C(n-c, k) / C(n, k) for n samples of which c are correct.

    Computed as 1 - prod_{i=n-c+1}^{n} (1 - k/i). Raises ValueError unless 0 <= c <= n and 1 <= k <= n.
    """
    if not 0 <= c <= n or not 1 <= k <= n:
        raise ValueError(f"pass@{k} needs 0 <= c <= n and 1 <= k <= n; got n={n}, c={c}")
    if n - c < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(n - c + 1, n + 1))


def fast_p(items: Sequence[Outcome], p: float, baseline: str = "eager") -> float:
    """Share of problems with a correct sample faster than p times the baseline. fast_0 is the share with a correct one.

    A correct sample with no timing counts for p = 0 only.
    """
    if not items:
        return 0.0
    if p == 0:
        return sum(o.c > 0 for o in items) / len(items)
    return sum((o.best(baseline) or 0.0) > p for o in items) / len(items)


def geometric_mean(ratios: Sequence[float]) -> float | None:
    """exp(mean(log r)), which cannot overflow as a product of ratios can; None for no ratios."""
    return math.exp(sum(math.log(r) for r in ratios) / len(ratios)) if ratios else None


def speedup_all(items: Sequence[Outcome], baseline: str = "eager") -> float | None:
    """Geometric mean of the best speed-up over all problems; an unsolved one counts as 1.0 (keep the reference)."""
    return geometric_mean([o.best(baseline) or 1.0 for o in items])


def median_speedup(items: Sequence[Outcome], baseline: str = "eager") -> float | None:
    """Median of the best speed-up over problems that have one."""
    known = [s for o in items if (s := o.best(baseline)) is not None]
    return float(np.median(known)) if known else None


def mean_estimate(values: Sequence[float], *, draws: int = 1000, seed: int = 0) -> Estimate | None:
    """Mean of one value a problem with its percentile-bootstrap interval; vectorised. None for no values."""
    if not values:
        return None
    array = np.asarray(values, dtype=np.float64)
    picks = np.random.default_rng(seed).integers(0, len(array), (draws, len(array)))
    low, high = np.percentile(array[picks].mean(axis=1), [2.5, 97.5])
    return Estimate(float(array.mean()), float(low), float(high), len(array))


def speedup_estimate(items: Sequence[Outcome], baseline: str = "eager") -> Estimate | None:
    """Geometric mean of the best speed-up over problems that have one, with its interval over those problems."""
    logs = [math.log(s) for o in items if (s := o.best(baseline)) is not None]
    found = mean_estimate(logs)
    return found and Estimate(math.exp(found.value), math.exp(found.low), math.exp(found.high), found.problems)


def mean_pass_at_k(items: Sequence[Outcome], k: int) -> Estimate | None:
    """pass@k averaged over the problems that have at least k samples; None when no problem has.

    A problem for which nothing was written counts as 0: leaving it out would reward a model for what it cannot do.
    """
    if not any(o.n >= k for o in items):
        return None
    return mean_estimate([pass_at_k(o.n, o.c, k) if o.n else 0.0 for o in items if o.n >= k or not o.n])


def mean_fast_p(items: Sequence[Outcome], p: float, baseline: str = "eager") -> Estimate | None:
    """fast_p with its interval over problems."""
    return mean_estimate([fast_p([o], p, baseline) for o in items])


def status_counts(items: Iterable[Outcome]) -> dict[str, int]:
    """How many samples ended in each status, every status listed."""
    counts = {s.value: 0 for s in Status}
    for outcome in items:
        for status in outcome.statuses:
            counts[status.value] += 1
    return counts


def cost_per_solved(items: Sequence[Outcome]) -> float | None:
    """Dollars for each problem with a correct sample; None when a cost is unknown or nothing is solved."""
    solved = sum(o.c > 0 for o in items)
    costs = [o.usd for o in items]
    known = [c for c in costs if c is not None]
    return sum(known) / solved if solved and len(known) == len(costs) else None


class PairedProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One problem in both runs."""

    problem: str
    rates: tuple[float, float]
    """Share of correct samples."""
    speedups: tuple[float | None, float | None]
    """Best speed-up over the baseline."""


class PairedRound(msgspec.Struct, frozen=True, kw_only=True):
    """Second run against first, both after so many rounds."""

    rounds: int
    pass_at_1: Estimate | None
    solved: Estimate | None


class PairedComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Second run against first: positive differences and ratios above 1 favour the second. Each counts with all its rounds."""

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
    asked: tuple[int, int] = (1, 1)
    """Rounds of both runs."""
    rounds: tuple[PairedRound, ...] = ()
    """The two runs after 1, 2, ... rounds, as far as both have them; empty where each has one round."""


def compare(first: Sequence[Outcome], second: Sequence[Outcome], baseline: str = "eager") -> PairedComparison:
    """Pair the outcomes of two runs by problem name; problems that only one has are listed, not scored."""
    left, right = {o.problem: o for o in first}, {o.problem: o for o in second}
    shared = [name for name in left if name in right]
    couples = [(left[name], right[name]) for name in shared]
    pairs = tuple(_pair(a, b, baseline) for a, b in couples)
    logs = [math.log(p.speedups[1] / p.speedups[0]) for p in pairs if p.speedups[0] and p.speedups[1]]
    ratio = mean_estimate(logs)
    asked = (rounds_of(first), rounds_of(second))
    return PairedComparison(
        baseline=baseline,
        pairs=pairs,
        only_first=tuple(n for n in left if n not in right),
        only_second=tuple(n for n in right if n not in left),
        pass_at_1=mean_estimate([p.rates[1] - p.rates[0] for p in pairs]),
        solved=mean_estimate([float((b.c > 0) - (a.c > 0)) for a, b in couples]),
        faster=mean_estimate([fast_p([b], 1.0, baseline) - fast_p([a], 1.0, baseline) for a, b in couples]),
        speed=ratio and Estimate(math.exp(ratio.value), math.exp(ratio.low), math.exp(ratio.high), ratio.problems),
        gained=tuple(b.problem for a, b in couples if b.c and not a.c),
        lost=tuple(a.problem for a, b in couples if a.c and not b.c),
        asked=asked,
        rounds=tuple(_paired_round(couples, r) for r in range(1, min(asked) + 1)) if max(asked) > 1 else (),
    )


def rounds_of(items: Sequence[Outcome]) -> int:
    """How many rounds there were."""
    return max((len(o.rounds) for o in items), default=0) or 1


def _paired_round(couples: Sequence[tuple[Outcome, Outcome]], rounds: int) -> PairedRound:
    then = [(a.after(rounds), b.after(rounds)) for a, b in couples]
    return PairedRound(
        rounds=rounds,
        pass_at_1=mean_estimate([b.rate - a.rate for a, b in then]),
        solved=mean_estimate([float((b.c > 0) - (a.c > 0)) for a, b in then]),
    )


def _pair(a: Outcome, b: Outcome, baseline: str) -> PairedProblem:
    return PairedProblem(problem=a.problem, rates=(a.rate, b.rate), speedups=(a.best(baseline), b.best(baseline)))
