"""Quantiles are computed by sorting, at any size."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from compiled import problem

from kernelllm.compiler.capture.decompositions.composite_functions import FUNCTIONS
from kernelllm.compiler.compiler_writer import Compiler
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
