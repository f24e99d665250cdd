"""A training run that fits a given number of seconds: the learning rate follows the clock, and the clock ends the run."""

from __future__ import annotations

import math
import time
from typing import Any

from kernelllm.models.extras import need
from kernelllm.train import weights
from kernelllm.train.config import Training


class TimeBudget:
    """How much of the seconds is used, 0 to 1. The first step, which compiles, is part of the budget and not of the schedule."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.began = self.stepping = time.monotonic()
        self.used = 0.0

    def start(self) -> None:
        """Training begins."""
        self.began = time.monotonic()

    def step(self, first: bool) -> None:
        """A step is done. All processes go by the first one's clock."""
        if first:
            _synchronize()
            self.stepping = time.monotonic()
        left = max(self.seconds - (self.stepping - self.began), 1e-6)
        self.used = _of_first_process(min((time.monotonic() - self.stepping) / left, 1.0))


def factor(how: Training, used: float) -> float:
    """The share of the learning rate when so much of the time is used: ``schedule`` after a warmup."""
    if how.schedule != "constant" and used < how.warmup:
        return used / how.warmup
    rest = min((used - how.warmup) / max(1 - how.warmup, 1e-9), 1.0)
    return {"cosine": 0.5 * (1 + math.cos(math.pi * rest)), "linear": 1 - rest}.get(how.schedule, 1.0)


def callback(budget: TimeBudget) -> Any:
    """Drives the clock of a Trainer, and ends training in time."""
    base: Any = need("transformers", "train").TrainerCallback

    class Watch(base):  # type: ignore[misc]
        """Looks at the clock after each step."""

        seen = 0

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            budget.start()

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.seen += 1
            budget.step(self.seen == 1)
            if budget.used >= 1:
                state.max_steps = state.global_step
                control.should_training_stop = True

    return Watch()


def _synchronize() -> None:
    torch = need("torch", "train")
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _of_first_process(value: float) -> float:
    """A number of the first process, known to all."""
    if weights.processes().num_processes == 1:
        return value
    box = [value]
    need("accelerate.utils", "train").broadcast_object_list(box)
    return box[0]
