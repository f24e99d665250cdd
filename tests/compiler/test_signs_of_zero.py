"""Sums of zeros are +0, as in torch, where a function looks at the sign."""

from __future__ import annotations

from compiled import problem

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options
from kernelllm.core.types import Candidate
from kernelllm.judge import Judge

ANGLES = """
class Model(nn.Module):
    def forward(self, a, b):
        return torch.atan2(torch.cross(a, b, dim=-1).norm(dim=-1), (a * b).sum(-1))
rows = 40
def get_inputs():
    a = torch.randn(rows, 3)
    a[::7] = 0.0
    return [a, -torch.rand(rows, 3)]
def get_init_inputs(): return []
"""


def test_angles_between_vectors_of_zeros(quick: Judge) -> None:
    given = problem(ANGLES)
    verdict = quick.judge(given, Candidate(source=compiled(given, Options(any_dtype=False))))
    assert verdict.correct, verdict.message
