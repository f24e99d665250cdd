"""Sorted positions of a top-k may be others that rounding alone tells from the reference's, and no others."""

from __future__ import annotations

from typing import Any

import torch

from kernelllm.core.types import Problem, SizeSet
from kernelllm.judge.trials.comparison.compare import Rules
from kernelllm.judge.trials.reference_runs.reference import prepare

EVICTION = """
import torch
class Model(torch.nn.Module):
    def forward(self, queries, keys):
        votes = torch.softmax((queries @ keys.transpose(1, 2)) / 8, -1).sum(1).float()
        index = votes.topk(200, dim=-1).indices.sort(-1).values
        return keys.gather(1, index.unsqueeze(-1).expand(-1, -1, keys.shape[-1])), index
def get_inputs(): return [torch.randn(2, 16, 64).bfloat16(), torch.randn(2, 1500, 64).bfloat16()]
def get_init_inputs(): return []
"""


def chosen(queries: torch.Tensor, keys: torch.Tensor, *, worst: bool = False, twice: bool = False) -> tuple[Any, ...]:
    """The problem's output, its scores not rounded on their way."""
    votes = torch.softmax((queries.float() @ keys.float().transpose(1, 2)) / 8, -1).sum(1)
    index = votes.topk(200, dim=-1).indices
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
    assert not right(chosen(*inputs, worst=True))
    assert not right(chosen(*inputs, twice=True))
    assert not right((mine[0].roll(1, 1), mine[1]))
