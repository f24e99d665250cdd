"""Sizes beyond the problem's own that a candidate refuses in words are a limit of it, not sizes that it was written for alone."""

from __future__ import annotations

from pathlib import Path

from kernelllm.core.types import Candidate, Problem
from kernelllm.judge import Judge

PROBLEM = Path(__file__).parents[1] / "cheats" / "problems" / "relu.py"
SOURCE = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row, offsets = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0)
    tl.store(y_ptr + row * columns + offsets, tl.maximum(x, 0.0), mask=offsets < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        if x.shape[1] > 4096:
            raise ValueError(f"rows of up to 4096 elements; got {x.shape[1]}")
        if x.numel() > 10_000_000:
            raise ValueError(f"offsets of 24 bits; got {x.numel()}")
        x = x.contiguous()
        y = torch.empty_like(x)
        relu_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
"""


def test_a_limit_beyond_the_problem_s_sizes_is_told_and_fixes_none(warm: Judge) -> None:
    verdict = warm.judge(Problem(name="relu", source=PROBLEM.read_text()), Candidate(source=SOURCE))
    assert verdict.correct, verdict.message
    assert len(verdict.shapes) > 1
    assert "fixed_sizes" not in {finding.check for finding in verdict.findings}
    assert any(finding.check == "limits" and "rows of up to 4096" in finding.message for finding in verdict.findings)
