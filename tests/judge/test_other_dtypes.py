"""Candidates that say which types they serve (``DTYPES``) are tried in each."""

from __future__ import annotations

import pytest
import torch
from problems import HEAD

from kernelllm.core.types import Candidate, Problem, Status
from kernelllm.judge import Judge
from kernelllm.judge.trials.usage.half_difference import half_precision_difference
from kernelllm.problems.sizes import dtypes_of

PROBLEM = Problem(
    name="scaled",
    source=f"""{HEAD}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(64))
    def forward(self, x): return torch.exp(x) * self.weight
def get_inputs(): return [torch.randn(48, 64)]
def get_init_inputs(): return []
""",
)


def scaled(forward: str, *, value: str = "tl.exp(x.to(tl.float32)) * w.to(tl.float32)", claim: str = "torch.bfloat16") -> Candidate:
    return Candidate(
        source=f"""{HEAD}
DTYPES = (torch.float32, {claim})
@triton.jit
def kernel(x_ptr, w_ptr, y_ptr, n, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, i < n)
    w = tl.load(w_ptr + i % COLUMNS, i < n)
    tl.store(y_ptr + i, {value}, i < n)
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(64))
    def forward(self, x):
        {forward}
        x = x.contiguous()
        kernel[(triton.cdiv(x.numel(), 512),)](x, self.weight, y, x.numel(), x.shape[1], 512)
        return y
"""
    )


LIKE = "y = torch.empty(x.shape, device=x.device, dtype=x.dtype)"
FLOAT32 = "y = torch.empty(x.shape, device=x.device)"
EXP = "tl.exp(x.to(tl.float32))"


@pytest.mark.parametrize(
    ("candidate", "status", "said"),
    [
        (scaled(LIKE), Status.CORRECT, ""),
        (scaled(FLOAT32), Status.INCORRECT, "Silently different in bfloat16"),
        (scaled(LIKE, value=f"{EXP} * w * (1 if w_ptr.dtype.element_ty == tl.float32 else 1.5)"), Status.INCORRECT, "elements are further"),
        (scaled(LIKE, value=f"{EXP} * w.to(tl.int32, bitcast=True).to(tl.float32, bitcast=True)"), Status.CORRECT, "fails there"),
        (scaled(f"if x.dtype != torch.float32: raise ValueError('float32 alone')\n        {LIKE}"), Status.CORRECT, "refuses"),
        (scaled(FLOAT32, claim=""), Status.CORRECT, ""),
    ],
    ids=["serves", "another type", "wrong", "fails", "refuses", "claims nothing"],
)
def test_claimed_types(warm: Judge, candidate: Candidate, status: Status, said: str) -> None:
    verdict = warm.judge(PROBLEM, candidate)
    assert verdict.status is status, verdict.message
    found = [f.message for f in verdict.findings if "bfloat16" in f.message]
    assert said in f"{verdict.message} {found}"
    assert bool(said) or not found


def test_rounding_is_no_difference() -> None:
    exact = torch.randn(1000, dtype=torch.float64) * 50
    eager = exact.bfloat16()
    assert half_precision_difference(eager, eager, exact) == ""
    assert half_precision_difference((exact * 1.005).bfloat16(), eager, exact) == ""
    assert half_precision_difference([eager, eager], [eager, eager.clone()], [exact, exact]) == ""  # one tensor that is returned twice
    assert half_precision_difference((exact * 1.5).bfloat16(), eager, exact) != ""
    wide = exact.float()  # a forward that computes in float32 whatever it is given: float64 gives the same numbers to all digits
    assert half_precision_difference((exact * (1 + 2e-5)).float(), wide, wide.double()) == ""
    assert half_precision_difference((exact * (1 + 1e-3)).float(), wide, wide.double()) != ""
    few = eager.clone()
    few[:10] = 0
    assert half_precision_difference([few, torch.arange(4)], [eager, torch.zeros(4, dtype=torch.int64)], [exact, torch.arange(4)]) == ""


@pytest.mark.parametrize("text", ["", "DTYPES = 3", "DTYPES = (torch.save, 1)", "def broken("])
def test_no_claim(text: str) -> None:
    assert dtypes_of(text) == ()
