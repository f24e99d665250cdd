"""Outputs of every structure, parameters, buffers, dtypes."""

from __future__ import annotations

import pytest
import torch
from judge.problems import candidate, elementwise, problem

from kernelllm.core.types import Candidate, Status
from kernelllm.judge import Judge, JudgeSettings
from kernelllm.judge.judge_settings import KERNELBENCH
from kernelllm.judge.trials.reference_runs.topk_ties import RecordedChoices, with_reference_positions

SCALE = """
@triton.jit
def scale_kernel(x, w, y, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offs, tl.load(x + offs, mask=offs < n) * tl.load(w), mask=offs < n)
def scale(x, w):
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 256),)](x, w, y, x.numel(), BLOCK=256)
    return y
"""
PARAMETER = problem(
    "x * self.w", "[torch.randn(ROWS, 40)]", init="self.w = nn.Parameter(torch.randn(1))", extra="ROWS = 48", name="parameter"
)


def test_nested_outputs_with_scalars(warm: Judge) -> None:
    nested = problem("{'a': (x * 2, None), 'n': x.shape[0], 'm': [x.argmax(dim=1), x > 0]}", "[torch.randn(ROWS, 24)]", extra="ROWS = 40")
    forward = """        two = torch.full((1,), 2.0, device=x.device)
        return {'a': (scale(x, two), None), 'n': x.shape[0], 'm': [x.argmax(dim=1), x > 0]}"""
    honest = candidate(SCALE, forward)
    with Judge(JudgeSettings(device="cpu", checks=("no_kernel",), sizes=1)) as judge:
        verdict = judge.judge(nested, honest)
        assert verdict.status is Status.CORRECT, verdict.message
        wrong = Candidate(source=honest.source.replace("'n': x.shape[0]", "'n': x.shape[0] + 1"))
        assert "output['n']" in judge.judge(nested, wrong).message
        missing = Candidate(source=honest.source.replace(", None)", ",)"))
        assert "sequence of 2 items" in judge.judge(nested, missing).message


def test_parameters_are_loaded_and_baked_ones_found(warm: Judge) -> None:
    init = "self.w = nn.Parameter(torch.randn(1))"
    honest = candidate(SCALE, "        return scale(x, self.w)", init=init)
    verdict = warm.judge(PARAMETER, honest)
    assert verdict.status is Status.CORRECT, verdict.message
    baked = candidate(SCALE, "        return scale(x, self.copy)", init=f"{init}; self.copy = self.w.detach().clone()")
    verdict = warm.judge(PARAMETER, baked)
    assert verdict.status is Status.INCORRECT
    assert "baked" in verdict.message


def test_parameters_of_other_names_are_right_by_the_seed_alone(warm: Judge) -> None:
    renamed = candidate(SCALE, "        return scale(x, self.weight)", init="self.weight = nn.Parameter(torch.randn(1))")
    verdict = warm.judge(PARAMETER, renamed)
    assert verdict.status is Status.INCORRECT  # other values of the reference's parameter cannot be loaded
    assert "names and shapes" in verdict.message
    other = candidate(SCALE, "        return scale(x, self.weight)", init="self.weight = nn.Parameter(torch.ones(1))")
    with Judge(JudgeSettings(device="cpu", profile=KERNELBENCH, cache=False)) as as_kernelbench:
        assert as_kernelbench.judge(PARAMETER, renamed).status is Status.CORRECT
        assert as_kernelbench.judge(PARAMETER, other).status is Status.INCORRECT


@pytest.mark.parametrize("updates", [True, False])
def test_buffers_updated_in_training_mode(lenient: Judge, updates: bool) -> None:
    counting = problem(
        "x * self.count.add_(1)", "[torch.randn(ROWS, 24)]", init="self.register_buffer('count', torch.zeros(1))", extra="ROWS = 40"
    )
    step = "self.count.add_(1)" if updates else "self.count + 1"
    honest = candidate(SCALE, f"        return scale(x, {step})", init="self.register_buffer('count', torch.zeros(1))")
    verdict = lenient.judge(counting, honest)
    assert verdict.status is (Status.CORRECT if updates else Status.INCORRECT), verdict.message
    assert updates or "count" in verdict.message


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32"])
def test_dtypes(lenient: Judge, dtype: str) -> None:
    inputs = "torch.randint(-50, 50, (ROWS, 40), dtype=torch.int32)" if dtype == "int32" else f"torch.randn(ROWS, 40).to(torch.{dtype})"
    doubled = problem("x + x", f"[{inputs}]", extra="ROWS = 48")
    verdict = lenient.judge(doubled, elementwise("v + v"))
    assert verdict.status is Status.CORRECT, verdict.message
    off = "v + v + 1" if dtype == "int32" else "v * 2.05"
    assert lenient.judge(doubled, elementwise(off)).status is Status.INCORRECT


def test_strided_inputs_arrive_strided(lenient: Judge) -> None:
    transposed = problem("x * 2", "[torch.randn(ROWS, 24).t()]", extra="ROWS = 40")
    forward = """        assert not x.is_contiguous() and x.stride(0) == 1
        return scale(x, torch.full((1,), 2.0, device=x.device))"""
    assert lenient.judge(transposed, candidate(SCALE, forward)).status is Status.CORRECT


def test_positions_among_equal_values_may_be_returned_twice() -> None:
    """One tensor at two places of an output is compared at both."""
    numbers = torch.tensor([1.0, 2.0, 2.0, 3.0])
    with RecordedChoices() as run:
        expected = torch.topk(numbers, 2).indices
    other, wrong = torch.where(expected == 2, 1, torch.where(expected == 1, 2, expected)), torch.tensor([3, 0])
    assert not torch.equal(other, expected)
    for mine, right in ((other, True), (wrong, False)):
        taken = with_reference_positions((mine, mine), (expected, expected), lambda: run.found)
        assert [torch.equal(one, expected) for one in taken] == [right, right]


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ("Output(scale(x, two), x.shape[0])", ""),
        ("(scale(x, two), x.shape[0])", "is a plain sequence: reading it by name fails"),
        ("Swapped(scale(x, two), x.shape[0])", "has its names in the order rows, doubled"),
    ],
)
def test_names_of_a_tuple_are_kept(warm: Judge, result: str, told: str) -> None:
    kinds = "Output = namedtuple('Output', 'doubled rows')\nSwapped = namedtuple('Other', 'rows doubled')"
    names = f"from collections import namedtuple\n{kinds}"
    named = problem("Output(x * 2, x.shape[0])", "[torch.randn(ROWS, 24)]", extra=f"ROWS = 40\n{names}")
    mine = candidate(f"{names}\n{SCALE}", f"        two = torch.full((1,), 2.0, device=x.device)\n        return {result}")
    verdict = warm.judge(named, mine)
    assert verdict.status is (Status.INCORRECT if "order" in told else Status.CORRECT), verdict.message
    assert ("output_names" in verdict.message) is ("plain" in told)
    assert told in " ".join((verdict.message, *(f.message for f in verdict.findings)))
