"""Reservations of a device's memory: in order, never too much, and gone with their holder."""

import fcntl
import multiprocessing
import os
import signal
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from kernelllm.pool.locks import DeviceLock, DeviceMemory, MemoryReservation, ReservationCancelled


@pytest.fixture
def device() -> str:
    return f"test-{uuid.uuid4()}"


def test_all_who_fit_hold_at_once_and_nobody_gets_more_than_there_is(device: str) -> None:
    memory = DeviceMemory(device, 100)
    with memory.reserve(60) as first, memory.reserve(40) as second:
        assert (first, second) == (60, 40)
    with memory.reserve(1000) as everything:
        assert everything == 100


def test_who_came_first_goes_first(device: str) -> None:
    memory, order = DeviceMemory(device, 100), []
    entered = threading.Event()

    def take(name: str, wanted: int) -> None:
        with memory.reserve(wanted):
            order.append(name)

    with memory.reserve(50):
        large = threading.Thread(target=take, args=("large", 80))
        large.start()
        while memory._before(memory._folder / "999999999-0") < 130:  # until its reservation is asked for
            entered.wait(0.01)
        small = threading.Thread(target=take, args=("small", 30))  # would fit now, but came later
        small.start()
        small.join(0.2)
        assert order == []
    large.join(10)
    small.join(10)
    assert order == ["large", "small"]
    assert list(memory._folder.iterdir()) == []


def _hold(device: str, ready: "multiprocessing.synchronize.Event") -> None:
    with DeviceMemory(device, 100).reserve(100):
        ready.set()
        signal.pause()


def test_a_killed_holder_gives_its_memory_back(device: str) -> None:
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    holder = context.Process(target=_hold, args=(device, ready))
    holder.start()
    assert ready.wait(60)
    assert holder.pid is not None
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    with DeviceMemory(device, 100).reserve(100) as got:
        assert got == 100


def test_one_that_waits_for_exclusive_use_is_not_overtaken_by_those_who_share(device: str) -> None:
    order: list[str] = []
    first, waiting = DeviceLock(device), threading.Event()
    first.acquire_shared()

    def own() -> None:
        with DeviceLock(device) as lock:
            waiting.set()
            lock.acquire_exclusive()
            order.append("own")

    def share() -> None:
        with DeviceLock(device) as lock:
            lock.acquire_shared()
            order.append("share")

    owner = threading.Thread(target=own)
    owner.start()
    assert waiting.wait(10)
    while not _queued(device):
        waiting.wait(0.01)
    sharer = threading.Thread(target=share)
    sharer.start()
    sharer.join(0.2)
    assert order == []
    with first.released():  # lets go and queues again, behind both
        owner.join(10)
        sharer.join(10)
    assert order == ["own", "share"]


def _queued(device: str) -> bool:
    with DeviceLock(device)._queue.open("w") as queue:
        try:
            fcntl.flock(queue, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_between_two_steps_an_owner_who_waits_is_let_in(device: str) -> None:
    order: list[str] = []

    def own() -> None:
        with DeviceLock(device) as lock:
            lock.acquire_exclusive()
            order.append("own")

    with DeviceLock(device) as first:
        first.acquire_shared()
        first.let_exclusive_in()  # nobody waits
        owner = threading.Thread(target=own)
        owner.start()
        while not _queued(device):
            threading.Event().wait(0.01)
        assert order == []
        first.let_exclusive_in()
        assert order == ["own"]
        owner.join(10)


def test_a_reservation_is_waited_for_beside_other_work_and_kept_until_the_end(device: str) -> None:
    memory = DeviceMemory(device, 100)
    with MemoryReservation(memory, 80) as reservation:
        with memory.reserve(50):
            waiting = threading.Thread(target=reservation.wait)
            waiting.start()
            waiting.join(0.1)
            assert waiting.is_alive()
            assert reservation.bytes == 0
        waiting.join(10)
        assert reservation.bytes == 80
        reservation.wait()  # has it already
        assert len(list(memory._folder.iterdir())) == 1
    assert list(memory._folder.iterdir()) == []


def test_a_reservation_that_nobody_needs_any_more_ends_the_waiting(device: str) -> None:
    memory = DeviceMemory(device, 100)
    with memory.reserve(50), MemoryReservation(memory, 80) as reservation, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(reservation.wait)
        while len(list(memory._folder.iterdir())) < 2:
            threading.Event().wait(0.01)
        reservation.cancel()
        with pytest.raises(ReservationCancelled):
            waiting.result(10)
        assert len(list(memory._folder.iterdir())) == 1
