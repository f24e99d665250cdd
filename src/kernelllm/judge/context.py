"""Holds what all evaluations of one judge share."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from kernelllm.judge.judge_settings import JudgeSettings
from kernelllm.judge.references import References
from kernelllm.judge.timing.baselines import Baselines
from kernelllm.judge.timing.roofline import Floors
from kernelllm.judge.worker_pool import WorkerPool


@dataclass(frozen=True)
class JudgeContext:
    """Handed by a judge to each of its evaluations."""

    settings: JudgeSettings
    device: str
    target: str
    """What kernels are compiled for."""
    checks: Sequence[Any]
    executor: Executor
    """For what goes on beside trials: compiles, floors, spare workers."""
    workers: WorkerPool
    references: References
    floors: Floors
    baselines: Baselines

    @property
    def on_gpu(self) -> bool:
        """Whether candidates run on a GPU."""
        return self.device != "cpu"
