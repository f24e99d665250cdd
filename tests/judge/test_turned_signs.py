"""A ReLU may decide otherwise about numbers that are zero but for rounding, and about no others."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelllm.core.types import Problem, SizeSet
from kernelllm.judge.trials.comparison.compare import Rules
from kernelllm.judge.trials.reference_runs.reference import Reference, prepare
from kernelllm.judge.trials.reference_runs.turned_signs import TurnedSigns

GRADIENTS = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, weight, upstream):
        with torch.enable_grad():
            x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
            return torch.autograd.grad(torch.relu(x @ weight), [x, weight], upstream)
def get_inputs(): return [torch.randn(20000, 8), torch.randn(8, 64), torch.randn(20000, 64)]
def get_init_inputs(): return []
"""


@pytest.fixture(scope="module")
def reference() -> Reference:
    return prepare(Problem(name="p", source=GRADIENTS), SizeSet(label="original"), {}, "cpu", 0, True)


def turned(reference: Reference, seed: int, places: list[tuple[int, int]]) -> tuple[Any, TurnedSigns]:
    mode = TurnedSigns(places)
    with torch.no_grad(), mode:
        found = reference.model(*(t.double() for t in reference.inputs(seed)))
    return tuple(t.float() for t in found), mode


def test_signs_of_what_is_zero_but_for_rounding(reference: Reference) -> None:
    seed, near = next((seed, near) for seed in range(9) if len(near := turned(reference, seed, [])[1].near) > 2)
    places = [place for _, place in sorted(near)]
    other, _ = turned(reference, seed, [places[0], places[2]])
    assert reference.run(reference.inputs(seed), seed).compared(other, Rules()).ok
    wrong = (other[0], other[1] * 1.0005)
    assert not reference.run(reference.inputs(seed), seed).compared(wrong, Rules()).ok
    far, _ = turned(reference, seed, [(0, next(i for i in range(99) if (0, i) not in places))])
    assert not reference.run(reference.inputs(seed), seed).compared(far, Rules()).ok
