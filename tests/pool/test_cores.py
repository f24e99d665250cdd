"""Cores kept free for measuring: who works stays off them, who measures is on them, and without them nothing changes."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelllm.pool import cores


class Scheduler:
    """The operating system's side: the cores that the calling thread may run on."""

    def __init__(self, allowed: set[int], *, permitted: bool = True) -> None:
        self.allowed, self.permitted = allowed, permitted

    def get(self, thread: int) -> set[int]:
        return set(self.allowed)

    def set(self, thread: int, wanted: set[int]) -> None:
        if not self.permitted:
            raise PermissionError("not permitted")
        self.allowed = set(wanted)


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    made = Scheduler(set(range(64)))
    monkeypatch.setattr(os, "sched_getaffinity", lambda thread: made.get(thread))
    monkeypatch.setattr(os, "sched_setaffinity", lambda thread, wanted: made.set(thread, wanted))
    monkeypatch.setattr(cores, "_count", lambda: 4)
    monkeypatch.setenv("KERNELLLM_MEASURING_CORES", "")
    return made


@given(st.sets(st.integers(0, 255), max_size=160), st.integers(1, 16))
def test_each_gpu_has_cores_of_its_own_and_most_are_left_to_work(allowed: set[int], gpus: int) -> None:
    found = [cores.reserved(sorted(allowed), gpu, gpus) for gpu in range(gpus)]
    together = [core for one in found for core in one]
    assert len(together) == len(set(together))
    assert set(together) <= allowed
    assert len(together) <= len(allowed) / 4
    assert all(len(one) == (cores.RESERVED if len(allowed) // gpus >= cores.LEAST else 0) for one in found)


def test_a_process_of_a_pool_works_beside_the_cores_on_which_it_measures(scheduler: Scheduler) -> None:
    cores.avoid_timing_cores(1)
    working = set(scheduler.allowed)
    assert len(working) == 64 - 4 * cores.RESERVED
    with cores.measuring() as kept:
        assert scheduler.allowed == set(kept)
        assert len(kept) == cores.RESERVED
        assert not working & set(kept)
    assert scheduler.allowed == working


def test_where_it_is_not_permitted_or_there_are_few_cores_nothing_changes(scheduler: Scheduler) -> None:
    scheduler.permitted = False
    cores.avoid_timing_cores(0)
    with cores.measuring() as kept, cores.on_cores((1, 2)):
        assert kept == ()
        assert scheduler.allowed == set(range(64))
    scheduler.permitted, scheduler.allowed = True, {0, 1, 2, 3}
    cores.avoid_timing_cores(0)
    with cores.measuring() as kept:
        assert kept == ()
        assert scheduler.allowed == {0, 1, 2, 3}
