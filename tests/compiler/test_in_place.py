"""Kernels write in place only where nobody else sees it."""

from __future__ import annotations

import pytest
from compiled import problem

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options
from kernelllm.core.types import Candidate
from kernelllm.judge import Judge

PARTS_OF_A_COPY = """
class Model(nn.Module):
    def forward(self, cache, slots, x):
        copy = cache.clone()
        first, second = copy.TAKEN
        first[slots] = x
        second[slots] = 2 * x
        return copy, first.sum(1)
slots, rows, width = 32, 8, 24
def get_inputs(): return [torch.randn(2, slots, width), torch.randperm(slots)[:rows], torch.randn(rows, width)]
def get_init_inputs(): return []
"""


@pytest.mark.parametrize("taken", ["unbind(0)", "flatten(0, 1).chunk(2)"])
def test_a_write_into_a_part_of_a_copy_leaves_the_input_as_it_was(taken: str, hybrid: Judge) -> None:
    """Inductor takes the copy out, and has to see that what is written to is part of the input then."""
    text = PARTS_OF_A_COPY.replace("TAKEN", taken)
    verdict = hybrid.judge(problem(text), Candidate(source=compiled(problem(text), Options(fixed=True, mixed=True))))
    assert verdict.correct, verdict.message
