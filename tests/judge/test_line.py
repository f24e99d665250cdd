"""What a worker may do with its judge's turn at a device in the middle of a command."""

import contextlib
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernelllm.judge.isolation.forkserver import Worker
from kernelllm.judge.timing import device_lease
from kernelllm.judge.timing.device_lease import Line
from kernelllm.judge.transport import wire
from kernelllm.judge.transport.protocol import Done, Go, Report, Turns, Wants, WorkerGone, WorkerTimeout
from kernelllm.pool.locks import Turn


@pytest.fixture
def turn() -> Iterator[Turn]:
    with Turn(f"test-{uuid.uuid4()}") as one:
        one.share()
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
            wire.send(self.sock, Wants(number, wish))
            command, _ = wire.receive_command(self.sock)
            assert isinstance(command, Go)
        wire.send(self.sock, Done(number))


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    return Fake(tmp_path)


def _can(turn: Turn, how: str) -> bool:
    """Whether somebody else could have the device in that way now."""
    with turn.another() as other, ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(getattr(other, how))
        try:
            waiting.result(0.2)
        except TimeoutError:
            turn.rest()  # lets it come home
            waiting.result(10)
            return False
        return True


def test_while_a_worker_compiles_others_may_measure_and_afterwards_it_waits_for_them(turn: Turn, fake: Fake) -> None:
    lent = Line(turn)
    measuring, done = threading.Event(), threading.Event()

    def measure() -> None:
        with turn.another() as other:
            other.own()  # not before the worker rests
            measuring.set()
            done.wait(10)

    other = threading.Thread(target=measure)

    def play() -> None:
        wire.receive_command(fake.sock)
        other.start()
        assert not measuring.wait(0.2)
        wire.send(fake.sock, Wants(1, Turns.REST))
        wire.receive_command(fake.sock)
        assert measuring.wait(10)
        wire.send(fake.sock, Wants(1, Turns.SHARE))
        fake.sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            fake.sock.recv(1)  # no Go while somebody measures
        done.set()
        wire.receive_command(fake.sock)
        wire.send(fake.sock, Done(1))

    with ThreadPoolExecutor(1) as threads, lent.command():
        played = threads.submit(play)
        reply = fake.worker.ask(Report, time.monotonic() + 10, wants=lent.wants)
        played.result(10)
    assert isinstance(reply, Done)
    assert lent.waited >= 0.25
    assert turn.shared
    other.join(10)


def test_what_was_waited_for_others_does_not_count_against_the_deadline(fake: Fake) -> None:
    with ThreadPoolExecutor(1) as threads:
        threads.submit(fake.says, 1, Turns.SHARE)

        def wants(what: str) -> float:
            time.sleep(0.4)  # as long as others take
            return 0.4

        assert isinstance(fake.worker.ask(Report, time.monotonic() + 0.3, wants=wants), Done)
        with pytest.raises(WorkerTimeout):
            fake.worker.ask(Report, time.monotonic() + 0.1, wants=wants)


def test_a_worker_may_measure_alone_only_where_its_judge_says_so(turn: Turn) -> None:
    lent = Line(turn, alone=True)
    with lent.command():
        lent.wants(Turns.OWN)
        assert not _can(turn, "share")
    turn.share()
    lent = Line(turn)
    with lent.command():
        lent.wants(Turns.OWN)
        assert _can(turn, "share")


def test_a_worker_cannot_keep_the_device_to_itself_for_long(turn: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_lease, "MOST_OWNED_S", 0.05)
    lent = Line(turn, alone=True)
    with lent.command():
        lent.wants(Turns.OWN)
        time.sleep(0.06)
        lent.wants("anything")  # is a wish to share
        assert _can(turn, "share")
        lent.wants(Turns.OWN)
        assert _can(turn, "share")


def test_a_judge_that_measures_lends_nothing(turn: Turn) -> None:
    turn.own()
    lent = Line(turn)
    with lent.command():
        lent.wants(Turns.REST)
        assert not _can(turn, "share")


@pytest.mark.parametrize("reads", [True, False])
def test_a_worker_that_wants_without_end_runs_out_of_time(fake: Fake, turn: Turn, reads: bool) -> None:
    lent = Line(turn)
    stop = threading.Event()

    def flood() -> None:
        wire.receive_command(fake.sock)
        with contextlib.suppress(WorkerGone, OSError):
            while not stop.is_set():
                wire.send(fake.sock, Wants(1, Turns.SHARE))
                if reads:
                    wire.receive_command(fake.sock)

    flooding = threading.Thread(target=flood)
    flooding.start()
    start = time.monotonic()
    with lent.command(), pytest.raises(WorkerTimeout):
        fake.worker.ask(Report, start + 0.5, wants=lent.wants)
    assert time.monotonic() - start < 5
    stop.set()
    fake.worker._sock.close()
    fake.sock.close()
    flooding.join(10)
