"""Which trials are planned."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelllm.core.types import OF_TORCH_COMPILE, Problem
from kernelllm.judge.judge_settings import KERNELBENCH, QUICK, STRICT
from kernelllm.judge.trials.inputs.input_distribution import CONSTANTS, HEAVY, PROBLEM, REPEATED, TOUCHED, UNEVEN, draw
from kernelllm.judge.trials.schedule import schedule
from kernelllm.judge.trials.state.parameter_states import RANDOM


def test_each_size_starts_with_the_problems_own_inputs_and_parameters() -> None:
    for position in range(3):
        first = schedule(position, 3, STRICT)[0]
        assert (first.distribution, first.state, first.is_first) == (PROBLEM, "reference", True)


def test_small_sizes_see_both_signs_around_zero() -> None:
    """Errors in front of a maximum or a ReLU hide where all values are large or of one sign."""
    for position in range(3):
        assert "normal" in {one.distribution for one in schedule(position, 3, STRICT)}


def test_an_output_is_held_while_others_are_made_even_with_one_seed() -> None:
    for seeds in (1, 3):
        planned = schedule(0, seeds, STRICT)
        (held,) = (one.number for one in planned if one.held)
        assert 0 < held < len(planned) - 1


def test_only_the_first_size_gets_all_kinds() -> None:
    kinds = {TOUCHED, REPEATED, CONSTANTS, HEAVY}
    assert kinds <= {one.distribution for one in schedule(0, 3, STRICT)}
    assert not kinds & {one.distribution for one in schedule(1, 3, STRICT)}


def test_kernelbenchs_profile_keeps_to_the_problems_own_inputs() -> None:
    assert {one.distribution for one in schedule(0, 5, KERNELBENCH)} == {PROBLEM}


def test_the_quick_profile_sees_both_signs_and_other_parameters_in_few_trials() -> None:
    first, second = (schedule(position, 3, QUICK) for position in range(2))
    assert [one.distribution for one in second] == [PROBLEM, PROBLEM, "normal"]
    assert len(first) == len(second) + 1
    assert first[-1].state == RANDOM


@pytest.mark.parametrize(("ops", "drawn"), [({"aten.cumsum.default": 1}, True), ({"aten.cumprod.default": 1}, False)])
def test_uneven_factors_are_no_trial_of_long_products(ops: dict[str, int], *, drawn: bool) -> None:
    """Large factors of one part overflow there, where the product of all that is before is 0: in another order it is not a number."""
    inputs = [torch.randn(8, 4096)]
    of: Any = SimpleNamespace(device="cpu", forms={}, ops=ops, inputs=lambda seed: inputs, problem=Problem(name="p", source=""))
    assert (draw(of, UNEVEN, 1, 0) is not None) == drawn


def test_weights_among_the_inputs_of_a_compiled_graph_keep_their_size() -> None:
    inputs = [torch.randn(64, 64), 0.02 * torch.randn(64, 64), torch.arange(4), 3]
    spreads = {}
    for origin in ("graph", OF_TORCH_COMPILE):
        of = Problem(name="p", source="", origin=origin)
        reference: Any = SimpleNamespace(device="cpu", forms={}, ops={}, inputs=lambda seed: inputs, problem=of)
        drawn = draw(reference, "large", 1, 0)
        assert drawn is not None
        spreads[origin] = [float(t.std()) > 2 for t in drawn[:2]]
    assert spreads == {"graph": [True, True], OF_TORCH_COMPILE: [True, False]}
