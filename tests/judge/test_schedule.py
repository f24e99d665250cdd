"""Which trials are planned."""

from __future__ import annotations

from kernelllm.judge.trials.input_distribution import CONSTANTS, HEAVY, PROBLEM, REPEATED, TOUCHED
from kernelllm.judge.trials.schedule import schedule


def test_each_size_starts_with_the_problems_own_inputs_and_parameters() -> None:
    for position in range(3):
        first = schedule(position, 3, variants=True)[0]
        assert (first.distribution, first.state, first.is_first) == (PROBLEM, "reference", True)


def test_small_sizes_see_both_signs_around_zero() -> None:
    """Errors in front of a maximum or a ReLU hide where all values are large or of one sign."""
    for position in range(3):
        assert "normal" in {one.distribution for one in schedule(position, 3, variants=True)}


def test_an_output_is_held_while_others_are_made_even_with_one_seed() -> None:
    for seeds in (1, 3):
        planned = schedule(0, seeds, variants=True)
        (held,) = (one.number for one in planned if one.held)
        assert 0 < held < len(planned) - 1


def test_only_the_first_size_gets_all_kinds() -> None:
    kinds = {TOUCHED, REPEATED, CONSTANTS, HEAVY}
    assert kinds <= {one.distribution for one in schedule(0, 3, variants=True)}
    assert not kinds & {one.distribution for one in schedule(1, 3, variants=True)}


def test_kernelbenchs_profile_keeps_to_the_problems_own_inputs() -> None:
    assert {one.distribution for one in schedule(0, 5, variants=False)} == {PROBLEM}
