"""Convolutions that are given one number for all directions, or a bias that is a column of a matrix."""

import pytest
from compiled import problem

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options
from kernelllm.core.types import Candidate
from kernelllm.judge import Judge

BODY = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width, 3, 3))
    def forward(self, x, params):
        n = params.shape[0]
        weight, bias = params.split([8, 1], 1)
        rows = F.conv2d(x.flatten(0, 1)[None], weight.reshape(n, 8, 1, 1), bias.reshape(n), groups=n).relu()
        return rows, F.conv2d(x, self.weight, padding=(1,)).relu() + 1
width = 8
def get_inputs(): return [torch.randn(6, width, 12, 20), torch.randn(6, 9)]
def get_init_inputs(): return [width]
"""


@pytest.mark.parametrize("options", [Options(), Options(extern="avoid", fixed=True, mixed=True)])
def test_such_convolutions_are_right(options: Options, hybrid: Judge) -> None:
    verdict = hybrid.judge(problem(BODY), Candidate(source=compiled(problem(BODY), options)))
    assert verdict.correct, verdict.message
