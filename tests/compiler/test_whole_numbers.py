"""Products of integers, which torch has on the CPU alone, and searches among numbers that may be NaN."""

from __future__ import annotations

import pytest

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options
from kernelllm.core.types import Candidate, Problem
from kernelllm.judge.judging import Judge

BYTES = """
import torch, torch.nn as nn
class Model(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (out, width), dtype=torch.int8))
    def forward(self, x, p, q):
        x = (x * 40).round().clamp(-127, 127).to(torch.int8)
        return x.int() @ self.weight.t().int(), torch._int_mm(x, self.weight.t()), p @ q
rows, width, out = 34, 72, 40
def get_inputs(): return [torch.randn(rows, width), torch.randint(-99, 99, (9, width)), torch.randint(-99, 99, (width, 7))]
def get_init_inputs(): return [width, out]
"""
PLACES = """
import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, x, v):
        ends = x.cumsum(1) / x.sum(1, keepdim=True)
        middle = torch.searchsorted(ends, torch.full_like(v, 0.5))
        return torch.searchsorted(ends, v), torch.searchsorted(ends, v, right=True), middle
rows, length = 9, 37
def get_inputs(): return [torch.rand(rows, length), torch.rand(rows, 5)]
def get_init_inputs(): return []
"""

PARTS = """
import torch, torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("edges", torch.linspace(-2, 2, 20))
    def forward(self, x, ends):
        row = torch.arange(x.shape[0], device=x.device)
        group = torch.searchsorted(ends[1:], row, right=True)
        inner, flipped = torch.bucketize(x, self.edges[3:-2]), torch.bucketize(x, -self.edges.flip(0)[1:])
        return inner, row - ends[group], flipped, torch.bucketize(x, (self.edges + 0.3).cumsum(0).sort().values[2:])
rows = 90
def get_inputs(): return [torch.randn(rows, 7), torch.tensor([0, 10, 50, 90])]
def get_init_inputs(): return []
"""


def test_products_of_integers_are_kernels(judge: Judge) -> None:
    problem = Problem(name="bytes", source=BYTES)
    source = compiled(problem, Options())
    verdict = judge.judge(problem, Candidate(source=source))
    assert verdict.correct, verdict.message
    assert not any(finding.check == "torch_fallback" for finding in verdict.findings)
    assert source.count("tl.dot") == 1


def test_a_place_among_nan_is_behind_all_of_them(judge: Judge) -> None:
    """The judge draws rows of zeros too, whose shares are NaN."""
    problem = Problem(name="places", source=PLACES)
    verdict = judge.judge(problem, Candidate(source=compiled(problem, Options())))
    assert verdict.correct, verdict.message


def test_sizes_without_a_name_in_the_problem_are_called_after_tensors_and_attributes() -> None:
    text = """
import torch, torch.nn as nn
class Model(nn.Module):
    def __init__(self, length, filters, heads):
        super().__init__()
        self.conv, self.heads = nn.Conv1d(1, filters, length, stride=length // 2), heads
    def forward(self, x):
        y = torch.relu(self.conv(x[:, None]))
        return y.unflatten(1, (self.heads, -1)).sum(2)
def get_inputs(): return [torch.randn(5, 803)]
def get_init_inputs(): return [20, 72, 18]
"""
    source = compiled(Problem(name="unnamed", source=text), Options())
    assert "get_in" not in source
    for name in ("x_size1", "x_size1_2", "conv_weight_size2", "heads"):
        assert f"{name} = " in source or f", {name} = " in source, name


SORTED = """
import torch
rows, experts = 24, 8
class Model(torch.nn.Module):
    def forward(self, x, scores):
        chosen = scores.topk(2, -1)[1].reshape(-1)
        order = torch.argsort(chosen, stable=True)
        return x[order // 2] * 2
def get_inputs(): return [torch.rand(rows, 5), torch.rand(rows, experts)]
def get_init_inputs(): return []
"""


@pytest.mark.parametrize(("options", "by_torch"), [
    (Options(), False), (Options(extern="allow", symbolic=False), True), (Options(extern="allow", symbolic=False, mixed=True), False),
])  # fmt: skip
def test_whole_numbers_of_64_bits_are_sorted_by_torch_unless_they_are_positions(options: Options, by_torch: bool) -> None:
    """Inductor would sort a row this short in a kernel of its own."""
    assert ("torch.ops.aten.sort" in compiled(Problem(name="sorted", source=SORTED), options)) == by_torch


def test_searches_among_a_part_of_a_table_begin_where_the_part_does(judge: Judge) -> None:
    problem = Problem(name="parts", source=PARTS)
    verdict = judge.judge(problem, Candidate(source=compiled(problem, Options())))
    assert verdict.correct, verdict.message
