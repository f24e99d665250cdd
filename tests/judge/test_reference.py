"""What the judge learns of a reference by running it."""

from __future__ import annotations

import pytest

from kernelllm.core.types import Problem, SizeSet
from kernelllm.judge.trials.reference import prepare


@pytest.mark.parametrize(
    ("forward", "draws"),
    [
        ("torch.relu(x)", False),
        ("torch.dropout(x, 0.5, False)", False),
        ("torch.dropout(x, 0.5, True)", True),
        ("x + torch.rand(8)", True),
        ("x * random.random()", True),
        ("x * float(numpy.random.rand())", True),
    ],
)
def test_whether_it_draws_random_numbers(forward: str, draws: bool) -> None:
    source = f"""
import random, numpy, torch
class Model(torch.nn.Module):
    def forward(self, x):
        return {forward}
def get_inputs():
    return [torch.randn(4, 8)]
def get_init_inputs():
    return []
"""
    reference = prepare(Problem(name="p", source=source), SizeSet(label="original"), {}, "cpu", 0, True)
    reference.run(reference.inputs(0), 0)
    assert reference.draws is draws
