"""A candidate used otherwise than its problem does: what a verdict says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelllm.core.types import Candidate, Problem, Status
from kernelllm.judge import Judge, JudgeSettings

CHEATS = Path(__file__).parent.parent / "cheats"


@pytest.mark.parametrize(("name", "told"), [("honest_leaky", False), ("honest_overwrites", True)])
def test_a_second_backward_on_the_same_graph_is_told(name: str, told: bool) -> None:
    leaky = Problem(name="leaky", source=(CHEATS / "problems" / "leaky.py").read_text())
    one = Candidate(source=(CHEATS / "gradients" / f"{name}.py").read_text())
    with Judge(JudgeSettings(device="cpu", time_limit_s=20, backward=True, sizes=1, cache=False)) as judge:
        verdict = judge.judge(leaky, one)
    assert verdict.status is Status.CORRECT, verdict.message
    assert any("second backward" in f.message for f in verdict.findings) is told
