"""How long a candidate and its baselines take, measured round by round so that drift hits all of them alike.

The loop knows nothing of devices: a :class:`Contestant` runs a batch and returns one time a run. Rounds go
on until the 95 % interval of every median is within :data:`GOAL` of it, or the budget ends. Each round runs the
contestants in a random order and each batch visits its input sets in a random order, so that neither can be foreseen.
The earlier and the later rounds of a contestant must agree. Where they do not, the earlier ones are forgotten and measuring goes on.
A contestant that is known well enough goes on with small batches, since a ratio needs rounds that both sides shared.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
import numpy as np

from kernelllm.core.types import Floor, Measured, Timing
from kernelllm.judge.timing import statistics
from kernelllm.judge.timing.roofline import sol_score

GOAL = 0.01
"""Half-width of the median's interval, as a share of the median, at which measuring ends."""
BATCH_MS = 20.0
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
        return len(samples) >= MAX_RUNS or statistics.relative_width(samples) < GOAL

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
    contestants: Sequence[Contestant], *, budget_s: float, seed: int | None = None, small_ms: float = 0.2,
    fewest: Mapping[str, int] | None = None,
) -> Rounds:  # fmt: skip
    """Measure the contestants round by round until all are known well enough or ``budget_s`` seconds are over, half as long again where
    one of them is not settled.

    ``fewest``: runs that a contestant of that name gets at least; where it says nothing, :data:`MIN_RUNS`, and half of that for slow ones.
    Those with a median under ``small_ms`` are measured by graph replay as well, where they can be.
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
        if float(np.median(one.samples)) < small_ms:
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
    known = statistics.summarise([t for r in rounds.by_name[name] for t in r], rounds.graph_ms.get(name))
    halves = rounds.unsettled.get(name, (known.median_ms,))
    low, high = min(known.low_ms, *halves), max(known.high_ms, *halves)
    return msgspec.structs.replace(known, low_ms=low, high_ms=high, with_launching=with_launching)


def summarise(
    rounds: Rounds, candidate: str, device: str, floor: Floor | None, with_launching: Callable[[str], bool] = lambda name: False
) -> Timing:
    """The Timing of ``candidate`` against all other contestants of the rounds. ``with_launching``: see Measured, by name."""
    mine = measured(rounds, candidate, with_launching=with_launching(candidate))
    others = [n for n in rounds.by_name if n != candidate]
    baselines = {n: measured(rounds, n, with_launching=with_launching(n)) for n in others}
    speedups = {n: statistics.ratio(rounds.by_name[n], rounds.by_name[candidate]) for n in others}
    score = None
    if floor is not None and "eager" in baselines:
        score = sol_score(mine.median_ms, baselines["eager"].median_ms, floor.ms)
    return Timing(
        device=device,
        candidate=mine,
        baselines=baselines,
        speedups=speedups,
        floor_percent=100 * floor.ms / mine.median_ms if floor else None,
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
