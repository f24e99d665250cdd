"""A worker that can do nothing more says nothing of what its candidate does next."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelllm.backends.base import Mode, open_backend
from kernelllm.core.types import DEFAULT_BACKEND, Candidate, Problem, Status
from kernelllm.judge import Judge
from kernelllm.judge.isolation.candidate_failure import CandidateFailure, failure
from kernelllm.judge.isolation.candidate_process import TOTAL
from kernelllm.judge.isolation.forkserver import Worker
from kernelllm.judge.transport import protocol
from kernelllm.judge.trials.schedule import INIT_SEED
from kernelllm.judge.worker import failures

RELU = Problem(name="relu", source=(Path(__file__).parent.parent / "cheats" / "problems" / "relu.py").read_text())
ENDS = Candidate(
    source="""
import os
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        if not bool(x.any()):
            os._exit(3)
        return x.relu()
"""
)


def test_a_worker_that_is_gone_is_replaced_when_the_model_is_built_again(warm: Judge) -> None:
    warm.judge(RELU, ENDS)  # the server is up now
    x = torch.tensor([-1.0, 2.0])
    with warm.context.workers.start(ENDS, 30.0) as process:
        process.construct(([], {}), INIT_SEED)
        with pytest.raises(CandidateFailure, match="exit code 3"):
            process.run([torch.zeros(2)], 1)
        assert process.lost
        process.construct(([], {}), INIT_SEED)
        assert process.run([x], 1).value.tolist() == [0.0, 2.0]
    assert [ended.code for ended in process.ended][:1] == [3]
    assert len(process.ended) == 2


def test_the_time_in_which_a_worker_opens_its_device_is_not_the_candidate_s(warm: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a busy GPU that takes half a minute."""
    asked = Worker.ask

    def slowly(self: Worker, kind: Any, deadline: float, **fields: Any) -> Any:
        if kind is protocol.OpenArena:
            time.sleep(1.0)
        return asked(self, kind, deadline, **fields)

    warm.judge(RELU, ENDS)  # the server is up now
    monkeypatch.setattr(Worker, "ask", slowly)
    with warm.context.workers.start(ENDS, 0.9) as process:
        process.construct(([], {}), INIT_SEED)
        assert process.left > process.seconds * (TOTAL - 1)
        assert process.run([torch.tensor([-1.0, 2.0])], 1).value.tolist() == [0.0, 2.0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("CUDA error: device-side assert triggered\nCompile with `TORCH_USE_CUDA_DSA`", "An assertion failed on the GPU"),
        ("CUDA error: an illegal memory access was encountered", "illegal memory access"),
    ],
)
def test_an_index_that_torch_refuses_is_no_illegal_access(text: str, told: str) -> None:
    found = failure(failures.describe(1, RuntimeError(text), "", open_backend(DEFAULT_BACKEND), Mode.INTERPRET))
    assert found.status is Status.RUNTIME_ERROR
    assert found.message.startswith(told)
