"""Times the configurations of autotuning in a worker as candidates are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernelllm.judge.run_clock import FLUSH_BYTES, RunClock
from kernelllm.judge.timing.kernel_times import kernel_times
from kernelllm.judge.timing.launch_lead import MIN_LEAD_FLUSHES, EnqueuedBatch, Lead

_synchronize = torch.cuda.synchronize  # taken before any candidate code runs

_FLUSH_MS, _CYCLES_PER_MS = 0.05, 2_000_000
"""What a flush takes at least, and a clock that is as fast as any: with both the lead is rather too long than too short."""


def tuning_times(call: Callable[[], Any]) -> list[float]:
    """Milliseconds of some launches of a kernel, timed as candidates are."""
    flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
    call()

    def batch(lead: Lead) -> EnqueuedBatch:
        clock = RunClock(lead.runs, flush)
        clock.begin(flushes=MIN_LEAD_FLUSHES, busy_cycles=int(lead.busy_ms * _CYCLES_PER_MS), settle=False)
        for position in range(lead.runs):
            clock.flush()
            clock.start(position)
            call()
            clock.end(position)
        _synchronize()
        return EnqueuedBatch(clock.times_ms(), clock.enqueued_ms(), clock.reached_ms())

    return kernel_times(batch, _FLUSH_MS)
