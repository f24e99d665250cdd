"""Quantiles are computed by sorting, at any size."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from compiled import captured, problem

from kernelllm.compiler.capture.decompositions import quantiles
from kernelllm.compiler.capture.decompositions.composite_functions import FUNCTIONS
from kernelllm.compiler.compiler_writer import Compiler
from kernelllm.compiler.options import Options
from kernelllm.judge import Judge


@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "nearest", "midpoint"])
@pytest.mark.parametrize("q", [0.0, 0.3, 1.0, torch.tensor(0.25), torch.tensor([0.1, 0.9, 0.5])], ids=str)
def test_they_are_torch_s(name: str, interpolation: str, q: Any) -> None:
    torch.manual_seed(0)
    for shape in ((7,), (1, 5), (3, 4, 6)):
        plain = torch.randn(shape)
        for x in (plain, torch.where(torch.rand(shape) < 0.2, torch.nan, plain)):
            for dim in (None, 0, -1):
                for keepdim in (False, True):
                    wanted = getattr(torch, name)(x, q, dim, keepdim, interpolation=interpolation)
                    found = FUNCTIONS[name](None, x, q, dim, keepdim, interpolation=interpolation)
                    torch.testing.assert_close(found, wanted, equal_nan=True)


def test_a_module_that_clips_to_them(quick: Judge) -> None:
    text = """
class Model(nn.Module):
    def __init__(self, share):
        super().__init__()
        self.share = share
    def forward(self, x):
        most = torch.quantile(x.abs().flatten(1), self.share, dim=1, keepdim=True).clamp(min=1.0)[..., None]
        return x.clamp(-most, most) / most, x.nanquantile(0.3)
batch, rows, width = 4, 12, 40
def get_inputs(): return [torch.randn(batch, rows, width)]
def get_init_inputs(): return [0.95]
"""
    verdict = quick.judge(problem(text), next(Compiler().write(problem(text), 1)))
    assert verdict.correct, verdict.message


@pytest.mark.parametrize("q", [0.0, 0.001, 0.995, 1.0])
@pytest.mark.parametrize(("dim", "keepdim"), [(1, False), (-2, True), (None, False), (None, True)])
def test_quantiles_near_an_end_of_long_rows_are_chosen(q: float, dim: int | None, keepdim: bool) -> None:
    x = torch.randn(3, 9000, 2)
    x[1, 7, 1], x[2, 5, 0] = torch.nan, torch.inf
    for values in (x, x[::2]):
        kept = quantiles.near_an_end(values, q, dim, "linear", None)
        assert 0 < abs(kept) < values.shape[1]
        made = quantiles.of_chosen(values, q, dim, keepdim, kept)
        torch.testing.assert_close(made, torch.quantile(values, q, dim, keepdim=keepdim), equal_nan=True)


def test_a_quantile_near_an_end_sorts_nothing_on_the_path_for_known_sizes() -> None:
    body = """
class Model(nn.Module):
    def forward(self, x):
        limit = torch.quantile(x.abs().flatten(1), 0.995, dim=1, keepdim=True)
        return x.flatten(1).clamp(-limit, limit) / limit
def get_inputs(): return [torch.randn(4, 3, 64, 64)]
def get_init_inputs(): return []
"""
    called = [str(n.target) for n in captured(body, Options(extern="allow", symbolic=False, mixed=True)).graph.graph.nodes]
    assert any("topk" in name for name in called)
    assert not any("sort" in name for name in called)
