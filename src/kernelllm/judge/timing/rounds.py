"""Measures a candidate and its baselines round by round, so that drift hits all of them alike.

The loop knows nothing of devices: a :class:`Contestant` runs a batch and returns one time a run. Rounds go
on until the 95 % interval of every median is within :data:`GOAL` of it, or the budget ends. Each round runs the
contestants in a random order and each batch visits its input sets in a random order, so that neither can be foreseen.
The earlier and the later rounds of a contestant must agree. Where they do not, the earlier ones are forgotten and measuring goes on.
A contestant that is known well enough goes on with small batches, since a ratio needs rounds that both sides shared.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
import numpy as np

from kernelllm.core.types import Floor, Measured, Ratio, Timing
from kernelllm.judge.timing.roofline import sol_score

NOISE = 0.01
"""Two times closer than this are not told apart: processes differ by address layout and clock alone."""
_DRAWS = 500
GOAL = 0.01
"""Half-width of the median's interval, as a share of the median, at which measuring ends."""
BATCH_MS = 14.0
"""Aim for one batch: long enough for its start not to matter, short enough to alternate often."""
AGREED = 0.01
"""Largest distance of the medians of the earlier and the later rounds, as a share, of a time that is settled."""
_REPEATS = 4
"""How often earlier rounds are forgotten."""
MIN_ROUNDS, MIN_RUNS, MAX_RUNS = 4, 24, 400
LONG_MS = 2.0
"""Beyond it a batch needs no untimed run at its start: the first run hides what is left of the start."""
_SLOW_MS = 5.0
"""Beyond it half of :data:`MIN_RUNS` will do."""
_ROUNDS = 8
"""Aim where more than :data:`MIN_RUNS` are asked for."""
_SMALL_MS = 0.2
"""Below it a graph of launches is replayed as well."""
_SMALL_BATCH = 3
_STABLE = 0.03
_WARMUP_BATCHES, _WARMUP_MS = 8, 10.0


class Contestant(Protocol):
    """Something that can be timed."""

    name: str
    input_sets: int

    def times(self, order: Sequence[int], *, graph: bool = False, warmup: int = 1) -> list[float]:
        """Run once on each input set of ``order``; milliseconds of each run. Raises what running raises.

        ``warmup``: untimed runs before the first; ``graph``: replay a captured CUDA graph instead of calling; an empty list
        where it cannot be captured.
        """
        ...


@dataclass
class _Series:
    contestant: Contestant
    fewest: int | None = None
    batch: int = 4
    warmup: int = 1
    rounds: list[list[float]] = field(default_factory=list)

    @property
    def samples(self) -> list[float]:
        return [t for r in self.rounds for t in r]

    def plan(self, median_ms: float) -> None:
        """Size of a batch and fewest runs for a contestant that takes so long."""
        if self.fewest is None:
            self.fewest = MIN_RUNS if median_ms < _SLOW_MS else MIN_RUNS // 2
        self.batch = int(min(50, max(_SMALL_BATCH, BATCH_MS / max(median_ms, 1e-3), self.fewest / _ROUNDS)))
        self.warmup = int(median_ms < LONG_MS)

    def known(self) -> bool:
        """Whether its median is known well enough."""
        samples = self.samples
        if len(self.rounds) < MIN_ROUNDS or len(samples) < (self.fewest or MIN_RUNS):
            return False
        return len(samples) >= MAX_RUNS or relative_width(samples) < GOAL

    def halves(self) -> tuple[float, float]:
        """Medians of the earlier and of the later rounds."""
        middle = (len(self.rounds) + 1) // 2
        earlier, later = self.rounds[:middle], self.rounds[middle:] or self.rounds
        return _median(earlier), _median(later)

    def settled(self) -> bool:
        """Whether the earlier and the later rounds agree."""
        first, second = self.halves()
        return abs(first - second) <= AGREED * min(first, second)

    def forget_earlier(self) -> None:
        """Drop the earlier rounds."""
        self.rounds = self.rounds[(len(self.rounds) + 1) // 2 :]

    def run(self, rng: random.Random) -> None:
        count = min(self.batch, _SMALL_BATCH) if self.known() else self.batch
        self.rounds.append(self.contestant.times(_order(rng, self.contestant.input_sets, count), warmup=self.warmup))


def _median(rounds: Sequence[Sequence[float]]) -> float:
    return float(np.median([t for r in rounds for t in r]))


def _order(rng: random.Random, sets: int, count: int) -> list[int]:
    return [rng.randrange(sets) for _ in range(count)]


def _warm_up(one: _Series, rng: random.Random, deadline: float) -> None:
    """Run small batches until two medians in a row agree, and plan with what was seen."""
    last, count = None, 1
    for _ in range(_WARMUP_BATCHES):
        warmup = int(last is None or last < LONG_MS)
        median = float(np.median(one.contestant.times(_order(rng, one.contestant.input_sets, count), warmup=warmup)))
        stable = last is not None and abs(median - last) <= _STABLE * last
        last = median
        count = int(min(4, max(1, _WARMUP_MS / max(last, 1e-3))))
        if stable or time.monotonic() > deadline:
            break
    assert last is not None
    one.plan(last)


@dataclass(frozen=True)
class Rounds:
    """Raw times: contestant name to rounds of milliseconds."""

    by_name: dict[str, list[list[float]]]
    graph_ms: dict[str, float]
    unsettled: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Medians of the earlier and of the later rounds of those for whom they do not agree."""


def run_rounds(
    contestants: Sequence[Contestant], *, budget_s: float, seed: int | None = None,
    fewest: Mapping[str, int] | None = None,
) -> Rounds:  # fmt: skip
    """Measure the contestants round by round until all are known well enough or ``budget_s`` seconds are over, half as long again where
    one of them is not settled.

    ``fewest``: runs that a contestant of that name gets at least; where it says nothing, :data:`MIN_RUNS`, and half of that for slow ones.
    Those with a median under :data:`_SMALL_MS` are measured by graph replay as well, where they can be.
    """
    rng = random.Random(seed)
    deadline = time.monotonic() + budget_s
    series = [_Series(c, (fewest or {}).get(c.name)) for c in contestants]
    for one in series:
        _warm_up(one, rng, time.monotonic() + budget_s / 4)
    repeats = 0
    while True:
        late = time.monotonic() - deadline
        settled = all(t.settled() for t in series if t.rounds)
        if len(series[0].rounds) >= 2 and (late > budget_s / 2 or (late > 0 and settled)):
            break
        if all(t.known() for t in series):
            if settled or repeats == _REPEATS:
                break
            repeats += 1
            for one in series:
                one.forget_earlier()
        # All go on together: a ratio needs rounds that both sides shared.
        for one in rng.sample(series, len(series)):
            one.run(rng)
    graphs = {}
    for one in series:
        if float(np.median(one.samples)) < _SMALL_MS:
            replayed = one.contestant.times(_order(rng, one.contestant.input_sets, 20), graph=True)
            if replayed:
                graphs[one.contestant.name] = float(np.median(replayed))
    unsettled = {t.contestant.name: t.halves() for t in series if not t.settled()}
    return Rounds({t.contestant.name: t.rounds for t in series}, graphs, unsettled)


def median_ms(rounds: Rounds, name: str) -> float:
    """The median of all runs of a contestant."""
    return _median(rounds.by_name[name])


def measured(rounds: Rounds, name: str, *, with_launching: bool = False) -> Measured:
    """The time of a contestant. The interval of one that is not settled holds its earlier and its later rounds."""
    known = summarise([t for r in rounds.by_name[name] for t in r], rounds.graph_ms.get(name))
    halves = rounds.unsettled.get(name, (known.median_ms,))
    low, high = min(known.low_ms, *halves), max(known.high_ms, *halves)
    return msgspec.structs.replace(known, low_ms=low, high_ms=high, with_launching=with_launching)


def timing_of(
    rounds: Rounds, candidate: str, device: str, floor: Floor | None, with_launching: Callable[[str], bool] = lambda name: False
) -> Timing:
    """The Timing of ``candidate`` against all other contestants of the rounds. ``with_launching``: see Measured, by name."""
    mine = measured(rounds, candidate, with_launching=with_launching(candidate))
    others = [n for n in rounds.by_name if n != candidate]
    baselines = {n: measured(rounds, n, with_launching=with_launching(n)) for n in others}
    speedups = {n: ratio(rounds.by_name[n], rounds.by_name[candidate]) for n in others}
    score = None
    if floor is not None and "eager" in baselines:
        score = sol_score(mine.median_ms, baselines["eager"].median_ms, floor.ms)
    return Timing(
        device=device,
        candidate=mine,
        baselines=baselines,
        speedups=speedups,
        floor_percent=100 * floor.ms / mine.median_ms if floor and not floor.below_any_launch else None,
        sol_score=score,
    )


@dataclass(frozen=True)
class ClockCheck:
    """Does the worker's own clock agree with ours? Both in milliseconds, for one batch of ``runs`` runs."""

    reported_ms: float
    seen_ms: float
    runs: int
    launches: int

    SLACK_MS = 3.0
    RUN_MS = 0.15
    LAUNCH_MS = 0.03

    def honest(self) -> bool:
        """False when far more time passed than was reported: more than calls and launches can account for."""
        allowed = 1.35 * self.reported_ms + self.SLACK_MS + self.runs * (self.RUN_MS + self.LAUNCH_MS * self.launches)
        return self.seen_ms <= allowed


def below_floor(measured: Mapping[str, float], floor: Floor, bandwidth: float) -> bool:
    """True when a time in ``measured`` (ms) is less than the memory floor by over a tenth.

    Only memory counts as impossible: operations can be saved by algebra, bytes of distinct inputs cannot.
    """
    memory_ms = 1e3 * floor.bytes / bandwidth
    return any(ms < 0.9 * memory_ms for ms in measured.values())


def median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """Distribution-free 95 % interval of the median by order statistics.

    Ranks n/2 -+ 1.96 * sqrt(n)/2, the normal approximation of the binomial interval (Conover, Practical
    Nonparametric Statistics, section 3.2). Raises ValueError for no samples.
    """
    if not samples:
        raise ValueError("no samples")
    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    n = len(ordered)
    half = 1.96 * math.sqrt(n) / 2
    low = max(0, math.floor(n / 2 - half))
    high = min(n - 1, math.ceil(n / 2 + half))
    return float(ordered[low]), float(ordered[high])


def summarise(samples_ms: Sequence[float], graph_ms: float | None = None) -> Measured:
    """Median, its interval and mean of run times in milliseconds."""
    low, high = median_interval(samples_ms)
    return Measured(
        median_ms=float(np.median(samples_ms)),
        low_ms=low,
        high_ms=high,
        runs=len(samples_ms),
        mean_ms=float(np.mean(samples_ms)),
        graph_ms=graph_ms,
        quantiles_ms=tuple(float(q) for q in np.percentile(samples_ms, [0, 5, 25, 50, 75, 95, 100])),
    )


def relative_width(samples_ms: Sequence[float]) -> float:
    """Half the width of the median's 95 % interval, as a share of the median."""
    low, high = median_interval(samples_ms)
    return (high - low) / 2 / float(np.median(samples_ms))


def _medians(
    rng: np.random.Generator, rounds: Sequence[Sequence[float]], picks: np.ndarray[Any, Any]
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Median of each draw: the rounds of ``picks`` [draws, rounds], each with as many of its runs, resampled, as the longest has."""
    lengths = np.asarray([len(r) for r in rounds])
    table = np.zeros((len(rounds), lengths.max()))
    for row, times in zip(table, rounds, strict=True):
        row[: len(times)] = times
    runs = (rng.random((*picks.shape, table.shape[1])) * lengths[picks][:, :, None]).astype(np.int64)
    return np.asarray(np.median(table[picks[:, :, None], runs].reshape(len(picks), -1), axis=1))


def ratio(baseline_rounds: Sequence[Sequence[float]], candidate_rounds: Sequence[Sequence[float]], seed: int = 0) -> Ratio:
    """Speed-up with its 95 % interval from runs that were interleaved round by round.

    Rounds are the unit of resampling (a percentile bootstrap, Efron 1979), since drift of the clock is
    shared within a round; within a resampled round the runs are resampled too.
    """
    rng = np.random.default_rng(seed)
    value = float(np.median(np.concatenate(baseline_rounds)) / np.median(np.concatenate(candidate_rounds)))
    rounds = min(len(baseline_rounds), len(candidate_rounds))
    picks = rng.integers(0, rounds, (_DRAWS, rounds))
    draws = _medians(rng, baseline_rounds, picks) / _medians(rng, candidate_rounds, picks)
    low, high = (float(x) for x in np.percentile(draws, [2.5, 97.5]))
    return Ratio(value=value, low=low, high=high, tie=low <= 1 + NOISE and high >= 1 - NOISE)
