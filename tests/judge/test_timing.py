"""Timing statistics on simulated clocks: intervals cover, ties are called, real differences are found."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelllm.core.types import Floor, Measured, Severity, Timing
from kernelllm.judge.timing import measure, rounds
from kernelllm.judge.timing.roofline import sol_score


class Simulated:
    """A contestant on a simulated device whose speed drifts for everybody alike."""

    input_sets = 3

    def __init__(self, name: str, ms: float, clock: random.Random, drift: list[float], noise: float = 0.01) -> None:
        self.name, self.ms, self.clock, self.drift, self.noise = name, ms, clock, drift, noise
        self.orders: list[list[int]] = []
        self.warmups: list[int] = []

    def times(self, order: Sequence[int], *, graph: bool = False, warmup: int = 1) -> list[float]:
        self.orders.append(list(order))
        self.warmups.append(warmup)
        self.drift[0] *= 1 + self.clock.uniform(-0.002, 0.002)
        return [self.ms * self.drift[0] * (1 + abs(self.clock.gauss(0, self.noise))) for _ in order]


def _pair(a: float, b: float, seed: int) -> tuple[Simulated, Simulated]:
    clock, drift = random.Random(seed), [1.0]
    return Simulated("candidate", a, clock, drift), Simulated("eager", b, clock, drift)


def test_equal_contestants_tie_and_their_ratio_is_near_one() -> None:
    ties = 0
    worst = 0.0
    for seed in range(40):
        measured = rounds.run_rounds(_pair(1.0, 1.0, seed), budget_s=1, seed=seed)
        ratio = rounds.timing_of(measured, "candidate", "simulated", None).speedups["eager"]
        ties += ratio.tie
        worst = max(worst, abs(ratio.value - 1))
    assert ties >= 38
    assert worst < 0.02


def test_a_real_difference_is_no_tie_and_the_interval_holds_it() -> None:
    covered = 0
    for seed in range(40):
        measured = rounds.run_rounds(_pair(1.0, 1.2, seed), budget_s=1, seed=seed)
        ratio = rounds.timing_of(measured, "candidate", "simulated", None).speedups["eager"]
        assert not ratio.tie
        covered += ratio.low <= 1.2 <= ratio.high
    assert covered >= 34


def test_every_contestant_gets_the_same_number_of_rounds_and_unforeseeable_input_sets() -> None:
    pair = _pair(0.5, 5.0, 1)
    measured = rounds.run_rounds(pair, budget_s=1, seed=1)
    assert len(measured.by_name["candidate"]) == len(measured.by_name["eager"]) >= rounds.MIN_ROUNDS
    visited = [i for order in pair[0].orders for i in order]
    assert set(visited) == {0, 1, 2}


def test_who_is_known_goes_on_in_small_batches_beside_a_noisy_one_and_the_interval_still_holds_the_ratio() -> None:
    covered = 0
    for seed in range(20):
        clock, drift = random.Random(seed), [1.0]
        quiet, noisy = Simulated("candidate", 1.0, clock, drift, 0.001), Simulated("eager", 2.0, clock, drift, 0.2)
        measured = rounds.run_rounds((quiet, noisy), budget_s=1, seed=seed)
        mine, others = measured.by_name["candidate"], measured.by_name["eager"]
        assert len(mine) == len(others) > rounds.MIN_ROUNDS
        assert len(mine[-1]) < max(map(len, quiet.orders))
        ratio = rounds.timing_of(measured, "candidate", "simulated", None).speedups["eager"]
        middle = 2.0 * (1 + 0.2 * 0.6745)  # the noise is one-sided: |N(0, 0.2)|, whose median is 0.6745 of its sigma
        covered += ratio.low <= middle <= ratio.high
    assert covered >= 18


class Moving(Simulated):
    """A contestant whose time is another one for its first batches."""

    def __init__(self, name: str, ms: float, before: float, batches: int) -> None:
        super().__init__(name, ms, random.Random(1), [1.0], 0.001)
        self.before, self.batches = before, batches

    def times(self, order: Sequence[int], *, graph: bool = False, warmup: int = 1) -> list[float]:
        early = len(self.orders) < self.batches
        return [t * (self.before if early else 1.0) for t in super().times(order, graph=graph, warmup=warmup)]


class Drifting(Simulated):
    """A contestant that takes longer with every batch."""

    def __init__(self, name: str, ms: float) -> None:
        super().__init__(name, ms, random.Random(1), [1.0], 0.001)

    def times(self, order: Sequence[int], *, graph: bool = False, warmup: int = 1) -> list[float]:
        return [t * 1.02 ** len(self.orders) for t in super().times(order, graph=graph, warmup=warmup)]


def test_a_time_whose_rounds_disagree_is_measured_on_until_they_agree_or_is_said_not_to_be_settled() -> None:
    briefly, moving = Moving("eager", 1.0, 1.05, 5), Drifting("eager", 1.0)
    settled = rounds.run_rounds((_pair(1.0, 1.0, 1)[0], briefly), budget_s=1, seed=1)
    assert "eager" not in settled.unsettled
    assert rounds.measured(settled, "eager").median_ms == pytest.approx(1.0, rel=0.01)
    moved = rounds.run_rounds((_pair(1.0, 1.0, 1)[0], moving), budget_s=1, seed=1)
    first, second = moved.unsettled["eager"]
    assert second > 1.01 * first
    shown = rounds.measured(moved, "eager")
    assert shown.low_ms <= first < second <= shown.high_ms


def test_long_runs_need_no_untimed_ones_before_them_and_fewer_runs_in_all() -> None:
    (slow, quick), wanted = _pair(40.0, 0.5, 3), 30
    measured = rounds.run_rounds((slow, quick), budget_s=1, seed=3)
    assert slow.warmups[0] == 1  # nothing is known yet
    assert not any(slow.warmups[1:])
    assert all(quick.warmups)
    assert len(measured.by_name["candidate"][0]) < len(measured.by_name["eager"][0])
    asked = rounds.run_rounds(_pair(40.0, 0.5, 3), budget_s=1, seed=3, fewest={"candidate": wanted})
    runs = [sum(map(len, r.by_name["candidate"])) for r in (measured, asked)]
    assert runs[0] < rounds.MIN_RUNS < wanted <= runs[1]


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=60))
def test_the_interval_of_the_median_holds_the_median(samples: list[float]) -> None:
    measured = rounds.summarise(samples)
    assert measured.low_ms <= measured.median_ms <= measured.high_ms
    assert measured.runs == len(samples)


def test_no_samples_is_an_error() -> None:
    with pytest.raises(ValueError, match="no samples"):
        rounds.median_interval([])


def test_sol_score_is_half_at_the_baseline_and_one_at_the_floor() -> None:
    assert sol_score(4.0, 4.0, 1.0) == pytest.approx(0.5)
    assert sol_score(1.0, 4.0, 1.0) == pytest.approx(1.0)
    assert sol_score(1.0, 1.0, 1.0) is None


@pytest.mark.parametrize(
    ("reported", "seen", "honest"),
    [(100.0, 104.0, True), (10.0, 100.0, False), (0.5, 4.0, True), (0.5, 40.0, False)],
)
def test_a_clock_that_reports_less_than_passed_is_caught(reported: float, seen: float, honest: bool) -> None:
    check = rounds.ClockCheck(reported_ms=reported, seen_ms=seen, runs=10, launches=1)
    assert check.honest() is honest


def test_below_the_memory_floor_is_impossible_and_below_the_arithmetic_floor_is_not() -> None:
    floor = Floor(ms=5.0, bytes=4_000_000_000, flops={"fp32": 1e15}, bound="compute")
    assert rounds.below_floor({"candidate": 0.5}, floor, bandwidth=4e12)
    assert not rounds.below_floor({"candidate": 1.0}, floor, bandwidth=4e12)

    def told(ms: float) -> list[Severity]:
        one = Measured(median_ms=ms, low_ms=ms, high_ms=ms, runs=9)
        found = measure._floor_findings(Timing(device="NVIDIA H200", candidate=one), floor, "NVIDIA H200")
        assert all(f.check == "faster_than_light" for f in found)
        return [f.severity for f in found]

    assert told(0.5) == [Severity.FAIL]
    assert told(2.0) == [Severity.INFO]
    assert told(6.0) == []
