"""Inputs and roundings that would end all work of a process on a GPU."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from kernelllm.core.types import Candidate, Problem
from kernelllm.judge import Judge, JudgeSettings
from kernelllm.judge.trials.reference_runs.device_asserts import keep_in_range, no_device_assert
from kernelllm.pool.local import LocalPool, Slot


def reference(model: torch.nn.Module, operator: str, own: list[Any], device: str = "cuda", flops: float = 1.0) -> Any:
    given = {"device": device, "ops": {operator: 1}, "flops": {operator: flops}, "model": model, "inputs": lambda seed: own}
    return SimpleNamespace(**given, runs_on_a_cpu=None, seed=0)


class Table(torch.nn.Module):
    def forward(self, x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return F.embedding(rows, x)


def test_a_position_beyond_its_dimension_is_not_tried_on_a_gpu() -> None:
    x = torch.randn(4, 3)
    inside, beyond = torch.tensor([0, 3]), torch.tensor([0, 4])
    tried = reference(Table(), "aten.embedding.default", [x, inside])
    assert no_device_assert(tried, [x, inside])
    assert not no_device_assert(tried, [x, beyond])
    assert no_device_assert(reference(Table(), "aten.embedding.default", [x, inside], device="cpu"), [x, beyond])  # a plain error
    assert no_device_assert(reference(Table(), "aten.add.Tensor", [x, inside]), [x, beyond])


def test_whole_numbers_are_not_risked_where_a_cpu_cannot_tell() -> None:
    x, rows = torch.randn(4, 3), torch.tensor([1])
    for unknown in (reference(Table(), "aten.gather.default", [x, rows], flops=1e15), reference(Table(), "aten.gather.default", [x, x])):
        assert no_device_assert(unknown, [x, rows])
        assert not no_device_assert(unknown, [x, rows], whole_numbers=True)


def test_other_rounding_moves_no_position_out_of_its_dimension() -> None:
    x, far = torch.randn(5, 7), torch.tensor([9, -8, 1])
    with keep_in_range("cuda"):
        assert torch.equal(x[far], x[[4, 0, 1]])
        assert torch.equal(F.embedding(far, x), x[[4, 0, 1]])
        assert torch.equal(x.gather(1, far[None]), x[:1, [6, 0, 1]])
        assert torch.equal(x[x > 0], x.masked_select(x > 0))
        assert F.binary_cross_entropy(torch.tensor([1.0000001, -1e-9]), torch.tensor([1.0, 0.0])) == 0
    with keep_in_range("cpu"), pytest.raises(IndexError):
        x[far]


def test_nan_is_no_probability_and_a_smaller_table_has_fewer_rows() -> None:
    model, own = Loss(), [torch.rand(4), torch.ones(4)]
    tried = reference(model, "aten.binary_cross_entropy.default", own)
    assert no_device_assert(tried, own)
    assert not no_device_assert(tried, [own[0] * float("nan"), own[1]])
    table, rows = torch.nn.Embedding(8, 2), [torch.tensor([7])]
    tried = reference(table, "aten.embedding.default", rows)
    assert no_device_assert(tried, rows)
    assert not no_device_assert(tried, rows, model=torch.nn.Embedding(4, 2))
    assert not no_device_assert(tried, rows, named={"offset": 3})


class Loss(torch.nn.Module):
    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.binary_cross_entropy(x, target)


def judge_on_a_gpu(slot: Slot) -> Judge:
    return Judge(JudgeSettings(device="cuda", measure=False, cache=False))


KERNEL = """
import torch
import triton
import triton.language as tl
@triton.jit
def add_one(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, at < n) + 1, at < n)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        add_one[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
        return y
"""


def judged(judge: Judge, problem: Problem) -> str:
    return judge.judge(problem, Candidate(source=KERNEL)).status.value


@pytest.mark.gpu
def test_a_reference_that_ends_the_gpu_s_work_of_a_judge_is_told_and_the_next_problem_is_judged() -> None:
    fine = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1
def get_inputs():
    return [torch.randn(64)]
def get_init_inputs():
    return []
"""
    never = "torch._assert_async(torch.zeros((), device=x.device) if x.is_cuda else torch.ones(()))"
    ends = fine.replace("return x + 1", f"{never}\n        return x + 1")
    with LocalPool[Problem, str](judge_on_a_gpu, judged) as pool:
        done = pool.call(Problem(name="ends", source=ends))
        assert "ProcessSpent" in done.error
        assert "While ends was judged" in done.error
        assert pool.call(Problem(name="fine", source=fine)).result == "correct"
