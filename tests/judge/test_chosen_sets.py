"""Sorted positions of a top-k may be others that rounding alone tells from the reference's, and no others."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelllm.core.types import Problem, SizeSet
from kernelllm.judge.trials.comparison.compare import Rules
from kernelllm.judge.trials.reference_runs.reference import prepare

EVICTION = """
import torch
class Model(torch.nn.Module):
    def forward(self, queries, keys):
        votes = torch.softmax((queries @ keys.transpose(1, 2)) / 8, -1).sum(1).float()
        pooled = torch.nn.functional.avg_pool1d(votes, 7, padding=3, stride=1)
        index = pooled.topk(500, dim=-1).indices.sort(-1).values
        return keys.gather(1, index.unsqueeze(-1).expand(-1, -1, keys.shape[-1])), index
def get_inputs(): return [torch.randn(2, 16, 64).bfloat16(), torch.randn(2, 1500, 64).bfloat16()]
def get_init_inputs(): return []
"""


def chosen(queries: torch.Tensor, keys: torch.Tensor, *, waves: float = 0.0, worst: bool = False, twice: bool = False) -> tuple[Any, ...]:
    """The problem's output, its scores not rounded on their way. ``waves``: what those of half of the positions are too large by."""
    votes = torch.softmax((queries.float() @ keys.float().transpose(1, 2)) / 8, -1).sum(1)
    votes = torch.nn.functional.avg_pool1d(votes, 7, padding=3, stride=1)
    index = (votes * (1 + waves * (torch.arange(votes.shape[-1]) % 2))).topk(500, dim=-1).indices
    if worst:
        index[:, -1] = votes.argmin(-1)
    if twice:
        index[:, -1] = index[:, 0]
    index = index.sort(-1).values
    return keys.gather(1, index.unsqueeze(-1).expand(-1, -1, keys.shape[-1])), index


def test_sets_that_rounding_exchanges() -> None:
    reference = prepare(Problem(name="p", source=EVICTION), SizeSet(label="original"), {}, "cpu", 0, True)
    inputs = reference.inputs(3)

    def right(value: tuple[Any, ...]) -> bool:
        return reference.run(inputs, 3).compared(value, Rules()).ok

    mine = chosen(*inputs)
    assert (mine[1] != reference.run(inputs, 3).expected.value[1]).float().mean() > 0.05
    assert right(mine)
    assert right(chosen(*inputs, waves=0.01))
    assert not right(chosen(*inputs, waves=0.1))
    assert not right(chosen(*inputs, worst=True))
    assert not right(chosen(*inputs, twice=True))
    assert not right((mine[0].roll(1, 1), mine[1]))


ALIGNMENT = """
import torch
class Model(torch.nn.Module):
    def forward(self, queries, keys):
        scores = (queries @ keys.transpose(1, 2)).float()
        return scores.mean(1).CHOICE
def get_inputs(): return [torch.randn(32, 16, 64).bfloat16(), torch.randn(32, 200, 64).bfloat16()]
def get_init_inputs(): return []
"""


@pytest.mark.parametrize("choice", ["argmax(-1)", "max(-1, keepdim=True).indices", "argsort(-1, descending=True)"])
def test_positions_of_the_largest_and_of_all_in_order(choice: str) -> None:
    reference = prepare(Problem(name="p", source=ALIGNMENT.replace("CHOICE", choice)), SizeSet(label="original"), {}, "cpu", 0, True)
    queries, keys = reference.inputs(3)
    keys[:, 1::2] = keys[:, ::2]
    keys[:, 1::2, 0] *= 1.0625  # pairs of scores that are nearly equal
    scores = (queries.float() @ keys.float().transpose(1, 2)).mean(1) * (1 + 0.008 * (torch.arange(200) % 4 == 1))

    def right(positions: torch.Tensor) -> bool:
        return reference.run([queries, keys], 3).compared(positions, Rules()).ok

    mine = eval(f"scores.{choice}", {"scores": scores})
    assert not torch.equal(mine, reference.run([queries, keys], 3).expected.value)
    assert right(mine)
    assert not right(mine.roll(1, -1) if "argsort" in choice else mine.roll(1, 0))
