"""What a worker may do with its judge's lock at a device in the middle of a command."""

import contextlib
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kernelllm.backends.base import DeviceAccess
from kernelllm.judge import device_share
from kernelllm.judge.device_share import DeviceLease, DeviceShare
from kernelllm.judge.isolation.forkserver import Worker
from kernelllm.judge.transport import wire
from kernelllm.judge.transport.protocol import AccessGranted, AccessRequest, Done, ReadReport, WorkerGone, WorkerTimeout
from kernelllm.judge.trials.first_runs import FirstRuns
from kernelllm.judge.trials.schedule import TrialSeeds
from kernelllm.pool.locks import DeviceLock


@pytest.fixture
def lock() -> Iterator[DeviceLock]:
    with DeviceLock(f"test-{uuid.uuid4()}") as one:
        one.acquire_shared()
        yield one


class Fake:
    """A worker whose side of the socket the test plays."""

    def __init__(self, folder: Path) -> None:
        ours, self.sock = socket.socketpair()
        self.status, status = os.pipe()
        leash, leash_end = os.pipe()
        self.open = [status, leash, leash_end]
        self.worker = Worker(ours, self.status, -1, folder)

    def says(self, number: int, *wishes: str) -> None:
        """Take a command, want these things one after the other, and reply."""
        wire.receive_command(self.sock)
        for wish in wishes:
            wire.send(self.sock, AccessRequest(number, wish))
            command, _ = wire.receive_command(self.sock)
            assert isinstance(command, AccessGranted)
        wire.send(self.sock, Done(number))


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    return Fake(tmp_path)


def _can(lock: DeviceLock, how: str) -> bool:
    """Whether somebody else could have the device in that way now."""
    with lock.duplicate() as other, ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(getattr(other, how))
        try:
            waiting.result(0.2)
        except TimeoutError:
            lock.release()  # lets it come home
            waiting.result(10)
            return False
        return True


def test_while_a_worker_compiles_others_may_measure_and_afterwards_it_waits_for_them(lock: DeviceLock, fake: Fake) -> None:
    lent = DeviceLease(lock)
    measuring, done = threading.Event(), threading.Event()

    def measure() -> None:
        with lock.duplicate() as other:
            other.acquire_exclusive()  # not before the worker rests
            measuring.set()
            done.wait(10)

    other = threading.Thread(target=measure)

    def play() -> None:
        wire.receive_command(fake.sock)
        other.start()
        assert not measuring.wait(0.2)
        wire.send(fake.sock, AccessRequest(1, DeviceAccess.RELEASED))
        wire.receive_command(fake.sock)
        assert measuring.wait(10)
        wire.send(fake.sock, AccessRequest(1, DeviceAccess.SHARED))
        fake.sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            fake.sock.recv(1)  # no AccessGranted while somebody measures
        done.set()
        wire.receive_command(fake.sock)
        wire.send(fake.sock, Done(1))

    with ThreadPoolExecutor(1) as threads, lent.command():
        played = threads.submit(play)
        reply = fake.worker.ask(ReadReport, time.monotonic() + 10, on_request=lent.request)
        played.result(10)
    assert isinstance(reply, Done)
    assert lent.waited >= 0.25
    assert lock.is_shared
    other.join(10)


def test_what_was_waited_for_others_does_not_count_against_the_deadline(fake: Fake) -> None:
    with ThreadPoolExecutor(1) as threads:
        threads.submit(fake.says, 1, DeviceAccess.SHARED)

        def wants(what: str) -> float:
            time.sleep(0.4)  # as long as others take
            return 0.4

        assert isinstance(fake.worker.ask(ReadReport, time.monotonic() + 0.3, on_request=wants), Done)
        with pytest.raises(WorkerTimeout):
            fake.worker.ask(ReadReport, time.monotonic() + 0.1, on_request=wants)


def test_a_worker_may_measure_alone_only_where_its_judge_says_so(lock: DeviceLock) -> None:
    lent = DeviceLease(lock, exclusive_allowed=True)
    with lent.command():
        lent.request(DeviceAccess.EXCLUSIVE)
        assert not _can(lock, "acquire_shared")
    lock.acquire_shared()
    lent = DeviceLease(lock)
    with lent.command():
        lent.request(DeviceAccess.EXCLUSIVE)
        assert _can(lock, "acquire_shared")


def test_a_worker_cannot_keep_the_device_to_itself_for_long(lock: DeviceLock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_share, "MAX_EXCLUSIVE_S", 0.05)
    lent = DeviceLease(lock, exclusive_allowed=True)
    with lent.command():
        lent.request(DeviceAccess.EXCLUSIVE)
        time.sleep(0.06)
        lent.request("anything")  # is a wish to share
        assert _can(lock, "acquire_shared")
        lent.request(DeviceAccess.EXCLUSIVE)
        assert _can(lock, "acquire_shared")


def test_a_judge_that_measures_lends_nothing(lock: DeviceLock) -> None:
    lock.acquire_exclusive()
    lent = DeviceLease(lock)
    with lent.command():
        lent.request(DeviceAccess.RELEASED)
        assert not _can(lock, "acquire_shared")


@pytest.mark.parametrize("reads", [True, False])
def test_a_worker_that_wants_without_end_runs_out_of_time(fake: Fake, lock: DeviceLock, reads: bool) -> None:
    lent = DeviceLease(lock)
    stop = threading.Event()

    def flood() -> None:
        wire.receive_command(fake.sock)
        with contextlib.suppress(WorkerGone, OSError):
            while not stop.is_set():
                wire.send(fake.sock, AccessRequest(1, DeviceAccess.SHARED))
                if reads:
                    wire.receive_command(fake.sock)

    flooding = threading.Thread(target=flood)
    flooding.start()
    with lent.command(), pytest.raises(WorkerTimeout):
        fake.worker.ask(ReadReport, time.monotonic() + 0.5, on_request=lent.request)
    stop.set()
    fake.worker._sock.close()
    fake.sock.close()
    flooding.join(10)


class CutProcess:
    def cut(self) -> None:
        pass


def test_runs_that_are_given_up_let_in_whom_their_threads_queue_behind(lock: DeviceLock) -> None:
    """One thread queues behind a judge that wants the device alone, which waits for what the thread's own judge holds."""
    queued, ended = threading.Event(), threading.Event()
    other = lock.duplicate()

    class Runs(FirstRuns):
        def _run(self, position: int, share: DeviceShare) -> Any:
            if position == 1:
                alone.start()
                while not lock._is_queued():
                    time.sleep(0.01)
                queued.set()
                share.acquire_shared()
            return position

    def have_it_alone() -> None:
        other.acquire_exclusive()
        other.release()

    def give_up() -> None:
        processes: list[Any] = [CutProcess(), CutProcess()]
        references: list[Any] = [None, None]
        with contextlib.suppress(ValueError), Runs(processes, references, TrialSeeds.__new__(TrialSeeds), DeviceShare(lock)).started():
            queued.wait(30)
            raise ValueError
        ended.set()

    alone = threading.Thread(target=have_it_alone, daemon=True)
    threading.Thread(target=give_up, daemon=True).start()
    assert ended.wait(30), "it waits for ever"
    alone.join(30)
    assert lock.is_shared
