"""Scores: identities that must hold for any outcome."""

from __future__ import annotations

import math
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelllm.bench import metrics
from kernelllm.bench.metrics import Outcome, pass_at_k
from kernelllm.core.types import Attempt, Candidate, Cost, Measured, Ratio, Status, Timing, Verdict

statuses = st.lists(st.sampled_from(list(Status)), min_size=1, max_size=12)


@st.composite
def outcome_lists(draw: st.DrawFn) -> list[Outcome]:
    """Problems with random statuses and speed-ups for their correct samples."""
    made = []
    for i in range(draw(st.integers(1, 8))):
        kinds = draw(statuses)
        speed = tuple(draw(st.floats(0.01, 100)) if s is Status.CORRECT else None for s in kinds)
        made.append(Outcome(problem=str(i), statuses=tuple(kinds), speedups={"eager": speed}))
    return made


@given(st.integers(1, 8), st.data())
def test_pass_at_k_equals_counting_all_subsets(n: int, data: st.DataObject) -> None:
    c = data.draw(st.integers(0, n))
    k = data.draw(st.integers(1, n))
    subsets = list(combinations(range(n), k))
    hit = sum(any(i < c for i in subset) for subset in subsets)
    assert pass_at_k(n, c, k) == pytest.approx(hit / len(subsets))


@given(st.integers(1, 200), st.data())
def test_pass_at_k_is_monotone_in_k_and_c(n: int, data: st.DataObject) -> None:
    c = data.draw(st.integers(0, n))
    values = [pass_at_k(n, c, k) for k in range(1, n + 1)]
    assert all(a <= b + 1e-12 for a, b in pairwise(values))
    assert pass_at_k(n, c, 1) == pytest.approx(c / n)
    if c < n:
        assert pass_at_k(n, c, n) <= pass_at_k(n, c + 1, n)


@pytest.mark.parametrize(("n", "c", "k"), [(5, 6, 1), (5, -1, 1), (5, 2, 0), (5, 2, 6)])
def test_pass_at_k_refuses_impossible_counts(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="pass@"):
        pass_at_k(n, c, k)


@given(outcome_lists())
def test_fast_0_is_the_rate_of_solved_problems_and_fast_p_falls(items: list[Outcome]) -> None:
    assert metrics.fast_p(items, 0) == sum(o.c > 0 for o in items) / len(items)
    series = [metrics.fast_p(items, p) for p in metrics.FAST_P]
    assert all(a >= b for a, b in pairwise(series))


@given(outcome_lists())
def test_interval_holds_the_value_and_lies_in_the_range(items: list[Outcome]) -> None:
    estimate = metrics.mean_pass_at_k(items, 1)
    assert estimate is not None
    assert 0 <= estimate.low <= estimate.high <= 1
    assert estimate.low - 1e-9 <= estimate.value <= estimate.high + 1e-9


def test_geometric_mean_does_not_overflow() -> None:
    assert metrics.geometric_mean([1e300] * 10) == pytest.approx(1e300)
    assert metrics.geometric_mean([]) is None


@given(outcome_lists())
def test_unsolved_problems_pull_the_mean_towards_one(items: list[Outcome]) -> None:
    solved, everything = metrics.speedup_estimate(items), metrics.speedup_all(items)
    assert everything is not None
    if solved is not None:
        assert abs(math.log(everything)) <= abs(math.log(solved.value)) + 1e-9


def test_strictly_faster_counts_and_equal_does_not() -> None:
    even = Outcome(problem="a", statuses=(Status.CORRECT,), speedups={"eager": (1.0,)})
    assert metrics.fast_p([even], 1.0) == 0.0
    assert metrics.fast_p([even], 0.8) == 1.0


def _attempt(problem: str, sample: int, status: Status, ms: float) -> Attempt:
    measured = Measured(median_ms=ms, low_ms=ms, high_ms=ms, runs=10)
    speedups = {"eager": Ratio(value=10 / ms, low=1, high=2)}
    timing = Timing(device="test", candidate=measured, speedups=speedups, floor_percent=50 / ms)
    verdict = Verdict(status=status, message="", timing=timing)
    return Attempt(problem=problem, candidate=Candidate(source="", sample=sample), verdict=verdict)


def test_outcomes_ignore_the_speed_of_wrong_samples_and_take_the_fastest_right_one() -> None:
    attempts = [_attempt("p", 1, Status.CORRECT, 5), _attempt("p", 0, Status.INCORRECT, 1), _attempt("p", 2, Status.CORRECT, 2)]
    (outcome,) = metrics.outcomes(attempts)
    assert outcome.statuses == (Status.INCORRECT, Status.CORRECT, Status.CORRECT)
    assert outcome.best("eager") == 5.0
    assert outcome.floor_percent == 25.0


def test_seconds_of_judging_are_a_gpus_where_one_was_used() -> None:
    for device, seconds in (("cpu (Triton interpreter)", 0.0), ("NVIDIA H200", 3.0)):
        cost = Cost(generate_s=1.0).judged(Verdict(status=Status.CORRECT, message="", seconds=3.0, environment={"device": device}))
        assert (cost.generate_s, cost.judge_s, cost.gpu_s) == (1.0, 3.0, seconds)
