"""Lint says which problems a wrong kernel can pass, whatever they are called."""

from __future__ import annotations

import pytest

from kernelllm.core.types import Problem, Severity
from kernelllm.problems.lint import LintReport, lint

SOURCE = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {SETUP}

    def forward(self, x):
        return {FORWARD}

batch, width = 64, 256

def get_inputs():
    return [torch.{DRAW}(batch, width)]
"""


def look(forward: str, draw: str = "rand", setup: str = "pass") -> LintReport:
    """Lint of a small problem."""
    return lint(Problem(name="p", source=SOURCE.replace("{FORWARD}", forward).replace("{DRAW}", draw).replace("{SETUP}", setup)))


@pytest.mark.parametrize(
    ("forward", "draw", "expected"),
    [
        ("torch.softmax(x, 1) * 1e-3", "rand", {"zeros_pass", "replay_passes"}),
        ("x.amax(1, keepdim=True) - x.amax(1, keepdim=True).mean(1, keepdim=True)", "rand", {"zeros_pass", "input_independent"}),
        ("torch.full_like(x, 3.0)", "rand", {"constant_passes", "input_independent"}),
        ("torch.linspace(0, 1, 256) + 1e-6 * x", "rand", {"replay_passes"}),
        ("F.dropout(x, 0.5)", "rand", {"random"}),
        ("torch.log(x - 2)", "rand", {"not_finite"}),
    ],
)
def test_degenerate_references_fail(forward: str, draw: str, expected: set[str]) -> None:
    report = look(forward, draw)
    failed = {f.check for f in report.findings if f.severity is Severity.FAIL}
    assert expected <= failed
    assert not report.clean


def test_tiny_output_and_axes_without_variation_are_warnings() -> None:
    report = look("(x * 0.008).expand(3, -1, -1)", "rand")
    assert report.clean
    assert {f.check for f in report.findings} >= {"tiny_range", "tiny_std", "constant_axis"}


def test_work_without_effect_is_a_warning() -> None:
    report = look("x * 2 + 0 * self.layer(x)", "rand", "self.layer = nn.Linear(width, width)")
    assert report.clean
    assert [f.message for f in report.findings if f.check == "redundant"] == ["Without effect on the output: layer."]


@pytest.mark.parametrize("forward", ["x * 2", "x.mean()", "torch.softmax(x, 1)", "x @ x.T", "x.argmax(1)", "x.sum(1).to(torch.bfloat16)"])
def test_sound_references_have_no_failure(forward: str) -> None:
    report = look(forward, "randn")
    assert report.clean
    assert report.numbers["replay"] > 1
