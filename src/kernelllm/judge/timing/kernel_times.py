"""Measures how long one configuration of an autotuned kernel takes on the GPU.

Triton's own benchmark lets the GPU wait for the host: while launches are watched, or on a slow host, it times launching, and the choice
among configurations is left to chance.
"""

from __future__ import annotations

from collections.abc import Callable

from kernelllm.judge.timing.launch_lead import EnqueuedBatch, LaunchLead, Lead

_FIRST, _MORE = 3, 8
"""Runs of the first batch, which tells how slow the host is, and of the others."""
_WANTED = 11
_LONGEST_MS = 30.0
"""No more is run after so much time of the kernel."""


def kernel_times(batch: Callable[[Lead], EnqueuedBatch], flush_ms: float) -> list[float]:
    """Milliseconds of some runs, without their launching. ``batch`` does as many runs as it is told, behind that lead."""
    lead, times, spent, runs = LaunchLead(flush_ms), list[float](), 0.0, _FIRST
    while len(times) < _WANTED and not (times and spent > _LONGEST_MS):
        timed = batch(lead.before("", runs))
        times += lead.learn("", timed)
        spent += sum(timed.times_ms)
        runs = _MORE
    return times
