"""The head start against a simulated queue: the host enqueues, the GPU works off, an event's time is when it is reached."""

from __future__ import annotations

import math

import pytest

from kernelllm.judge.timing.launch_lead import MIN_LEAD_FLUSHES, LaunchLead

FLUSH_MS = 0.07


def batch(start: LaunchLead, name: str, runs: int, gpu_ms: float, host_ms: float) -> list[float]:
    """What events say of each run of a batch whose launches take the host ``host_ms`` a run."""
    gpu = start.flushes(runs) * FLUSH_MS  # enqueued in no time
    times = []
    for run in range(runs):
        begin = gpu = max(gpu, run * host_ms) + FLUSH_MS
        gpu = max(gpu, (run + 1) * host_ms) + gpu_ms
        times.append(gpu - begin)
    start.learn(name, times, runs * host_ms)
    return times


@pytest.mark.parametrize("host_ms", [0.02, 0.11, 0.13, 0.15])
def test_all_runs_show_the_gpus_time_where_the_host_is_a_little_slow(host_ms: float) -> None:
    start = LaunchLead(FLUSH_MS)
    batch(start, "compile", 4, 0.036, host_ms)
    assert batch(start, "compile", 50, 0.036, host_ms) == pytest.approx([0.036] * 50)


def test_without_it_the_host_would_be_measured() -> None:
    assert batch(LaunchLead(FLUSH_MS), "compile", 50, 0.036, 0.13)[-1] > 0.05


def test_who_is_held_up_by_launching_gets_no_more_than_others() -> None:
    start = LaunchLead(FLUSH_MS)
    batch(start, "compile", 4, 0.036, 0.13)
    assert start.flushes(50) > MIN_LEAD_FLUSHES
    batch(start, "eager", 4, 0.05, 0.9)
    assert start.flushes(50) == MIN_LEAD_FLUSHES


def test_a_hiccup_and_a_worker_that_tells_nonsense_change_little() -> None:
    start = LaunchLead(FLUSH_MS)
    for _ in range(4):
        batch(start, "candidate", 10, 0.036, 0.02)
    batch(start, "candidate", 10, 0.036, 3.0)
    for told in (math.nan, math.inf, -1.0):
        start.learn("candidate", [0.036], told)
    start.learn("candidate", [], 1.0)
    assert start.flushes(50) == MIN_LEAD_FLUSHES
