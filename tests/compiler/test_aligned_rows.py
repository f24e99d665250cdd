"""Half-precision products of which 8 does not divide the columns."""

from __future__ import annotations

import pytest
import torch

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options
from kernelllm.compiler.templates.by_library import padded_mm
from kernelllm.core.types import Problem

HEAD = """
import torch
import torch.nn as nn
rows, width, words = 512, 1024, 1001
class Model(nn.Module):
    def __init__(self, width, words):
        super().__init__()
        self.head = nn.Linear(width, words, bias=False, dtype=torch.bfloat16)
    def forward(self, x):
        return {}
def get_inputs(): return [torch.rand(rows, width, dtype=torch.bfloat16)]
def get_init_inputs(): return [width, words]
"""


@pytest.mark.parametrize("columns", [65, 71, 100])
def test_rows_are_aligned_and_right(columns: int) -> None:
    a, b = (torch.randint(-4, 5, size).bfloat16() for size in ((17, 24), (columns, 24)))
    made = padded_mm(a, b.t())
    assert made.stride() == (128, 1)
    torch.testing.assert_close(made, a @ b.t(), atol=0, rtol=0)


@pytest.mark.parametrize(
    ("result", "aligned"),
    [("self.head(x).float().logsumexp(-1)", True), ("self.head(x).float().relu()", True), ("self.head(x).view(2, -1, words)", False)],
)
def test_the_library_gives_them_unless_they_are_the_result(result: str, aligned: bool) -> None:
    text = compiled(Problem(name="head", source=HEAD.format(result)), Options(extern="allow", symbolic=False, mixed=True))
    assert ("= padded_mm(" in text) is aligned
    assert ("= half_matmul(" in text) is not aligned
