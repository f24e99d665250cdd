"""Few tensors that are stacked to be reduced at once: one kernel, and no stack in memory."""

from __future__ import annotations

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options
from kernelllm.core.types import Candidate, Problem
from kernelllm.judge.judging import Judge

STACKS = """
import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, a, b, c, w, pair):
        lowest = -0.5 * torch.logsumexp(torch.stack((a, b, c), dim=-1) / -0.5, -1)
        mean = torch.stack([a, b * 2, c.relu(), a - c], 0).mean(0)
        weighed = (torch.stack([a, b], 1) * w[:, None]).sum(1, keepdim=True)
        gates = torch.stack([a, b, c], 1).softmax(1)
        shifted = torch.logsumexp(torch.stack((a, c), -1) + pair[:, None], -1)
        return shifted, lowest, mean, weighed, (gates * torch.stack([c, a, b], 1)).sum(1), torch.stack([a, c], 1).amin(1)
rows, width = 30, 50
def get_inputs(): return [torch.randn(rows, width) for _ in range(4)] + [torch.randn(rows, 2)]
def get_init_inputs(): return []
"""
READ = """
import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, a, b):
        both = torch.stack((a, b), dim=1) * 2
        return both, both.sum(1)
rows, width = 30, 50
def get_inputs(): return [torch.randn(rows, width) for _ in range(2)]
def get_init_inputs(): return []
"""


def test_stacks_that_are_reduced_are_one_kernel(judge: Judge) -> None:
    problem = Problem(name="stacks", source=STACKS)
    source = compiled(problem, Options())
    assert source.count("_kernel[") == 1
    verdict = judge.judge(problem, Candidate(source=source))
    assert verdict.correct, verdict.message


def test_a_stack_that_comes_out_is_one(judge: Judge) -> None:
    problem = Problem(name="read", source=READ)
    verdict = judge.judge(problem, Candidate(source=compiled(problem, Options())))
    assert verdict.correct, verdict.message
