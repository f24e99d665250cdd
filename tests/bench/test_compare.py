"""Comparing runs: paired by problem, antisymmetric, sure only of what the problems show."""

from __future__ import annotations

import pytest
from hypothesis import given

from kernelllm.bench.metrics import Outcome, compare
from kernelllm.core.types import Status
from tests.bench.test_metrics import outcome_lists


def _outcome(name: str, correct: int, wrong: int, speed: float | None = None) -> Outcome:
    statuses = (Status.CORRECT,) * correct + (Status.INCORRECT,) * wrong
    return Outcome(problem=name, statuses=statuses, speedups={"eager": (speed,) * correct + (None,) * wrong})


def test_gained_lost_and_unshared_problems_are_named() -> None:
    first = [_outcome("a", 1, 0, 2.0), _outcome("b", 0, 1), _outcome("c", 1, 0, 1.0), _outcome("x", 1, 0, 1.0)]
    second = [_outcome("a", 1, 0, 4.0), _outcome("b", 1, 0, 1.5), _outcome("c", 0, 1), _outcome("y", 1, 0, 1.0)]
    found = compare(first, second)
    assert (found.gained, found.lost, found.only_first, found.only_second) == (("b",), ("c",), ("x",), ("y",))
    assert found.speed is not None
    assert found.speed.value == pytest.approx(2.0)
    assert found.solved is not None
    assert found.solved.value == 0.0


@given(outcome_lists(), outcome_lists())
def test_swapping_the_runs_turns_every_difference_round(first: list[Outcome], second: list[Outcome]) -> None:
    there, back = compare(first, second), compare(second, first)
    for name in ("pass_at_1", "solved", "faster"):
        one, two = getattr(there, name), getattr(back, name)
        assert one.value == pytest.approx(-two.value)
    if there.speed is not None and back.speed is not None:
        assert there.speed.value == pytest.approx(1 / back.speed.value)


def test_a_run_against_itself_differs_nowhere() -> None:
    same = [_outcome(str(i), i % 3, 1, 1.5) for i in range(9)]
    found = compare(same, same)
    assert found.pass_at_1 is not None
    assert (found.pass_at_1.value, found.pass_at_1.low, found.pass_at_1.high) == (0, 0, 0)
    assert found.gained == found.lost == ()
