"""Judges in threads of one process: trainers, services and notebooks have threads and output streams of their own."""

from __future__ import annotations

import io
import sys
import threading

import pytest

from kernelllm.core.types import Candidate, Problem, Status
from kernelllm.judge import Judge, JudgeSettings

PROBLEM = """
import torch
import torch.nn as nn

print("loaded")

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width))

    def forward(self, x):
        print("forward")
        return x * self.scale + {shift}

def get_inputs():
    print("drawn")
    return [torch.randn(64, 96)]

def get_init_inputs():
    return [96]
"""
CANDIDATE = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scaled(x_ptr, scale_ptr, y_ptr, n, width, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    scale = tl.load(scale_ptr + i % width, mask=mask, other=0.0)
    tl.store(y_ptr + i, x * scale + {shift}, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width))

    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        scaled[(triton.cdiv(n, 1024),)](x, self.scale, y, n, x.shape[-1], BLOCK=1024)
        return y
"""


class Notebook(io.StringIO):
    """As Jupyter's: no file behind it."""

    def fileno(self) -> int:
        raise io.UnsupportedOperation("fileno")


def test_judges_in_four_threads_give_the_right_verdicts_and_touch_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = Notebook(), Notebook()
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    settings = JudgeSettings(device="cpu", time_limit_s=60, keep_verdicts=False)
    found: dict[tuple[int, int, int], Status] = {}
    messages: list[str] = []

    def work(judge: Judge, thread: int) -> None:
        for number in range(2):
            for wrong in (0, 1):
                problem = Problem(name=f"p{thread}_{number}", source=PROBLEM.replace("{shift}", str(thread)))
                shift = str(thread + wrong)
                verdict = judge.judge(problem, Candidate(source=CANDIDATE.replace("{shift}", shift)))
                found[thread, number, wrong] = verdict.status
                messages.append(verdict.message)

    with Judge(settings) as one, Judge(settings) as other:
        threads = [threading.Thread(target=work, args=(judge, i)) for i, judge in enumerate((one, one, other, other))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (sys.stdout, sys.stderr) == streams
    expected = {(t, n, w): Status.INCORRECT if w else Status.CORRECT for t in range(4) for n in range(2) for w in range(2)}
    assert found == expected, messages
