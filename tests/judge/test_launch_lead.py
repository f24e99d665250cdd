"""The head start against a simulated queue: the host enqueues, the GPU works off, an event's time is when it is reached."""

from __future__ import annotations

import math

import pytest

from kernelllm.judge.timing.kernel_times import kernel_times
from kernelllm.judge.timing.launch_lead import MIN_LEAD_FLUSHES, TRIES, EnqueuedBatch, LaunchLead, Lead

FLUSH_MS = 0.07


class Machine:
    """A host that takes ``host_ms`` to launch a run (each step may be held up) and a GPU that takes ``gpu_ms`` for it.

    ``waits``: the run waits for the GPU before its last kernel is launched. ``queue``: runs that the GPU's queue holds.
    """

    def __init__(self, gpu_ms: float, host_ms: float, *, waits: bool = False, queue: int = 10_000) -> None:
        self.gpu_ms, self.host_ms, self.waits, self.queue = gpu_ms, host_ms, waits, queue
        self.hiccups: dict[int, float] = {}
        """Position of a run in the next batch to what holds its launching up."""

    def batch(self, lead: Lead) -> EnqueuedBatch:
        host, gpu = 0.0, lead.busy_ms + MIN_LEAD_FLUSHES * FLUSH_MS
        enqueued, reached, ends = [host], [], []
        for run in range(lead.runs):
            if run >= self.queue:
                host = max(host, ends[run - self.queue])
            host += self.host_ms + self.hiccups.pop(run, 0.0)
            begin = max(gpu, enqueued[-1]) + FLUSH_MS
            if self.waits:
                host = max(host, begin + self.gpu_ms / 2)
            gpu = max(begin + self.gpu_ms, host)
            enqueued.append(host)
            reached.append(begin)
            ends.append(gpu)
        return EnqueuedBatch([e - r for e, r in zip(ends, reached, strict=True)], enqueued, reached)


def counted(lead: LaunchLead, name: str, machine: Machine, runs: int) -> list[float]:
    """What counts of the next batch from which anything counts."""
    for _ in range(TRIES):
        times = lead.learn(name, machine.batch(lead.before(name, runs)))
        if times:
            return times
    raise AssertionError("nothing ever counts")


@pytest.mark.parametrize("host_ms", [0.02, 0.13, 0.3, 0.9, 2.0, 9.0])
def test_only_the_gpus_time_counts_however_slow_the_host_is(host_ms: float) -> None:
    lead, machine = LaunchLead(FLUSH_MS), Machine(0.036, host_ms)
    times = [t for _ in range(6) for t in counted(lead, "eager", machine, 50)]
    assert times == pytest.approx([0.036] * len(times))
    assert len(times) >= 6
    assert not lead.held_up("eager")


def test_without_it_the_host_would_be_measured() -> None:
    assert Machine(0.036, 0.3).batch(Lead(50)).times_ms[-1] > 0.2


def test_runs_whose_launching_was_held_up_do_not_count_and_the_others_do() -> None:
    lead, machine = LaunchLead(FLUSH_MS), Machine(0.25, 0.3)
    counted(lead, "eager", machine, 20)
    machine.hiccups = {7: 30.0}
    times = counted(lead, "eager", machine, 20)
    assert times == pytest.approx([0.25] * len(times))
    assert 5 <= len(times) < 20
    assert len(counted(lead, "eager", machine, 20)) == 20


def test_a_short_queue_leaves_fewer_runs_that_count() -> None:
    lead, machine = LaunchLead(FLUSH_MS), Machine(0.4, 1.2, queue=4)
    for _ in range(8):
        times = counted(lead, "eager", machine, 50)
        assert times == pytest.approx([0.4] * len(times))


def test_who_waits_for_the_gpu_is_timed_with_its_launching_after_some_tries_and_costs_others_nothing() -> None:
    lead, machine = LaunchLead(FLUSH_MS), Machine(0.2, 0.5, waits=True)
    assert len(counted(lead, "candidate", machine, 20)) == 1
    assert lead.held_up("candidate")
    assert lead.before("candidate", 20) == Lead(20)
    assert len(counted(lead, "candidate", machine, 20)) == 20
    assert counted(lead, "eager", Machine(0.2, 0.02), 20) == pytest.approx([0.2] * 20)
    assert not lead.held_up("eager")


def test_a_lead_stays_short_and_a_worker_that_tells_nonsense_changes_nothing() -> None:
    lead = LaunchLead(FLUSH_MS)
    counted(lead, "candidate", Machine(0.1, 0.02), 10)
    before = lead.before("candidate", 50)
    for told in (math.nan, math.inf):
        lead.learn("candidate", EnqueuedBatch([0.1], [0.0, told], [1.0]))
    assert lead.before("candidate", 50) == before
    counted(lead, "eager", Machine(0.1, 1000.0, waits=True), 10)
    for runs in (1, 50):
        assert lead.before("eager", runs).busy_ms <= 60


def test_where_launching_counts_runs_do_not_in_which_something_else_held_the_host_up() -> None:
    lead = LaunchLead(FLUSH_MS)
    launching = [0.05, 0.06, 0.05, 0.4, 0.05, 0.11, 0.05, 0.2]
    batch = EnqueuedBatch([1 + held for held in launching], launching_ms=launching)
    assert lead.undisturbed("eager", batch) == pytest.approx([1.05, 1.06, 1.05, 1.05, 1.05])
    assert lead.undisturbed("eager", EnqueuedBatch([1.3, 1.3], launching_ms=[0.3, 0.3])) == []  # measured again
    assert lead.undisturbed("candidate", EnqueuedBatch([1.3, 1.3], launching_ms=[0.3, 0.3])) == [1.3, 1.3]  # its own pace


@pytest.mark.parametrize("host_ms", [0.02, 0.3, 5.0])
def test_configurations_are_told_apart_by_the_gpus_time_however_slow_the_host_is(host_ms: float) -> None:
    for gpu_ms in (0.004, 0.006):
        times = kernel_times(Machine(gpu_ms, host_ms).batch, FLUSH_MS)
        assert len(times) >= 8
        assert times == pytest.approx([gpu_ms] * len(times))


def test_a_slow_configuration_is_run_a_few_times_and_one_that_waits_for_the_gpu_ends_too() -> None:
    slow = Machine(400.0, 0.02)
    assert kernel_times(slow.batch, FLUSH_MS) == pytest.approx([400.0] * 3)
    assert kernel_times(Machine(0.2, 0.5, waits=True).batch, FLUSH_MS)
