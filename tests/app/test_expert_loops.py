"""Loops over the experts that any token chose, in live modules (transformers' experts): captured as loops over all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernelllm.app.live.expert_loops import compare_without_rows
from kernelllm.app.live.module_capture import captured, problem_of
from kernelllm.core.errors import CaptureError
from kernelllm.problems.instance import Instance

EXPERTS, IDENTITIES = 3, 1


class Experts(nn.Module):
    """Of which one gives its token back, as LongCat's do."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(8, EXPERTS + IDENTITIES)
        self.weights = nn.Parameter(torch.randn(EXPERTS, 8, 8))

    def forward(self, x: Any) -> Any:
        weights, chosen = self.router(x).softmax(-1).topk(2)
        mask = F.one_hot(chosen, EXPERTS + IDENTITIES).permute(2, 1, 0)
        out = torch.zeros_like(x)
        for hit in (mask.sum((-1, -2)) > 0).nonzero(as_tuple=False):
            expert = int(hit.item())
            place, token = torch.where(mask[hit].squeeze(0))
            if token.numel() == 0:
                continue
            rows = x[token] if expert >= EXPERTS else F.silu(F.linear(x[token], self.weights[expert]))
            out.index_add_(0, token, rows * weights[token, place, None])
        return out


class Counts(Experts):
    def forward(self, x: Any) -> Any:
        used = 0
        for hit in (self.router(x).argmax(-1) == torch.arange(4)[:, None]).any(-1).nonzero()[:, 0].tolist():
            used += 1 + 0 * hit
        return x * used


def test_experts_without_a_token_have_no_rows() -> None:
    torch.manual_seed(0)
    experts = Experts()
    graph = captured(experts, ((torch.randn(9, 8),), {}))
    problem = problem_of(experts, graph, "experts")
    compare_without_rows(experts, graph, problem)
    model = Instance(problem).model(0)
    model.load_state_dict(experts.state_dict())
    for tokens in (1, 9, 14):
        x = torch.randn(tokens, 8)
        torch.testing.assert_close(model(x), experts(x))


def test_what_a_module_does_for_no_rows_alone_is_seen() -> None:
    torch.manual_seed(0)
    counts = Counts()
    graph = captured(counts, ((torch.randn(9, 8),), {}))
    with pytest.raises(CaptureError, match="asks how many rows were found"):
        compare_without_rows(counts, graph, problem_of(counts, graph, "counts"))
