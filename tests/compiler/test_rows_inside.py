"""Loops whose steps read their state at neighbouring elements: one kernel, a program for each row."""

from __future__ import annotations

import pytest

from kernelllm.compiler.compiler_writer import Compiler
from kernelllm.core.types import Problem
from kernelllm.judge.judging import Judge

HEAD = "import torch, torch.nn as nn, torch.nn.functional as F\nclass Model(nn.Module):\n"
INIT = "def get_init_inputs(): return []\n"
LATTICE = (
    HEAD
    + """
    def forward(self, alpha, stay, move):
        rows = []
        for i in range(stay.shape[1]):
            moved = F.pad((alpha + move[:, i])[:, :-1], (1, 0), value=-1e30)
            alpha = torch.logaddexp(alpha + stay[:, i], moved).clamp_min(-1e30)
            rows.append(alpha)
        return torch.stack(rows, dim=1), alpha
def get_inputs(): return [torch.randn(9, 21), torch.randn(9, 12, 21), torch.randn(9, 12, 21)]
"""
    + INIT
)
RING = (
    HEAD
    + """
    def forward(self, u, force):
        for t in range(force.shape[1]):
            u = 0.5 * u + 0.2 * torch.roll(u, 1, -1) - 0.1 * torch.tanh(torch.roll(u, -1, -1)) + force[:, t]
        return u
def get_inputs(): return [torch.randn(6, 37), torch.randn(6, 11, 37)]
"""
    + INIT
)
PLATE = (
    HEAD
    + """
    def forward(self, u, force):
        for t in range(force.shape[1]):
            around = torch.roll(u, 1, -1) + torch.roll(u, -1, -1) + torch.roll(u, 1, -2) + torch.roll(u, -1, -2)
            u = 0.5 * u + 0.1 * around + force[:, t]
        return u
def get_inputs(): return [torch.randn(5, 9, 13), torch.randn(5, 10, 9, 13)]
"""
    + INIT
)
LAST = (
    HEAD
    + """
    def forward(self, h, decay, x):
        for t in range(x.shape[1]):
            h = torch.tanh(decay[:, t] * h + x[:, t])
        return h
def get_inputs(): return [torch.randn(6, 37), torch.randn(6, 11, 37), torch.randn(6, 11, 37)]
"""
    + INIT
)
WAVE = (
    HEAD
    + """
    def forward(self, u, before, force):
        for t in range(force.shape[1]):
            after = 1.8 * u - 0.9 * before + 0.05 * torch.roll(u, 1, -1) + 0.02 * torch.roll(before, 1, -1) + force[:, t]
            before, u = u, after
        return u, before
def get_inputs(): return [torch.randn(6, 37), torch.randn(6, 37), torch.randn(6, 11, 37)]
"""
    + INIT
)
ACROSS = RING.replace("torch.roll(u, 1, -1)", "torch.roll(u, 1, 0)")


def written(text: str) -> str:
    return next(Compiler().write(Problem(name="loop", source=text), 1)).source


@pytest.mark.parametrize(("text", "row"), [(LATTICE, "shape[-1]"), (RING, "shape[-1]"), (PLATE, "shape[-2] * u.shape[-1]"),
                                              (WAVE, "shape[-1]")], ids=["lattice", "ring", "plate", "wave"])  # fmt: skip
def test_a_row_goes_from_step_to_step_through_memory(text: str, row: str, quick: Judge) -> None:
    source = written(text)
    assert "for turn in range(0, steps)" in source
    assert f"{row}\n" in source
    assert source.count("@triton.jit") == 1
    problem = Problem(name="loop", source=text)
    verdict = quick.judge(problem, next(Compiler().write(problem, 1)))
    assert verdict.correct, verdict.message
    assert len(verdict.shapes) > 1


def test_a_step_of_which_only_the_last_state_comes_out_is_inside_of_its_kernel(quick: Judge) -> None:
    assert "for _ in tl.range(0, steps" in written(LAST)
    problem = Problem(name="loop", source=LAST)
    verdict = quick.judge(problem, next(Compiler().write(problem, 1)))
    assert verdict.correct, verdict.message


@pytest.mark.parametrize("text", [ACROSS, RING.replace("6, 37", "2, 40000").replace("6, 11, 37", "2, 2, 40000")], ids=["across", "long"])
def test_rows_that_need_each_other_or_are_long_stay_launches(text: str) -> None:
    source = written(text)
    assert "for turn in" not in source
    assert "self.step(" in source
