"""A writer works in a thread beside the judge: what tracing changes in torch meanwhile must not reach the reference."""

from __future__ import annotations

import threading

import torch

from kernelllm.compiler.capture.capture import capture
from kernelllm.compiler.options import Options
from kernelllm.core.types import Candidate, Problem
from kernelllm.core.writer import open_writer as writer
from kernelllm.judge import Judge, JudgeSettings

ATTENTION = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

def get_inputs():
    return [torch.randn(1, 2, 16, 16) for _ in range(3)]

def get_init_inputs():
    return []
"""
SLOW = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        torch.gate()
        return x + 1

def get_inputs():
    return [torch.randn(7)]

def get_init_inputs():
    return []
"""


def test_a_reference_is_judged_as_it_is_while_another_problem_is_traced(monkeypatch) -> None:
    problem = Problem(name="attention", source=ATTENTION)
    (candidate,) = writer("compiler").write(problem, 1)
    inside, go_on = threading.Event(), threading.Event()

    def gate() -> None:
        inside.set()
        go_on.wait(60)

    monkeypatch.setattr(torch, "gate", gate, raising=False)
    tracing = threading.Thread(target=lambda: capture(Problem(name="slow", source=SLOW), Options()))
    verdicts = []
    with Judge(JudgeSettings(device="cpu", cache=False)) as judge:
        judging = threading.Thread(target=lambda: verdicts.append(judge.judge(problem, Candidate(source=candidate.source))))
        tracing.start()
        assert inside.wait(60)
        judging.start()
        judging.join(2)  # it may wait for the tracing's end, and must not go on in a torch that is changed
        go_on.set()
        tracing.join(60)
        judging.join(120)
    assert [v.status.value for v in verdicts] == ["correct"], verdicts
