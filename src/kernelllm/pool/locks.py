"""Locks on a device across processes, shared for work and exclusive for timing; and reservations of its memory."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

_UNLOCKED = fcntl.LOCK_UN
_POLL_S = 0.02


def _file(name: str) -> Path:
    folder = Path(tempfile.gettempdir()) / f"kernelllm-locks-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / re.sub(r"[^A-Za-z0-9_.-]", "_", name)


class DeviceLock:
    """A lock on a device against every other process of this user on this machine. A context manager.

    Entering does not wait; :meth:`acquire_shared` and :meth:`acquire_exclusive` do. The operating system drops the lock
    when its holder dies, so a killed run never leaves it taken.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._handle = _file(device).open("w")
        self._queue = _file(f"{device}-queue")
        self._held = _UNLOCKED

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._handle.close()
        self._held = _UNLOCKED

    def duplicate(self) -> DeviceLock:
        """Another lock on the same device, for another thread."""
        return DeviceLock(self._device)

    @property
    def is_shared(self) -> bool:
        """Whether the lock is held in shared mode now."""
        return self._held == fcntl.LOCK_SH

    def release(self) -> None:
        """Let go. The holder has no work on the device, and starts none before it acquires the lock again."""
        self._change(_UNLOCKED)

    def acquire_shared(self) -> None:
        """Use the device beside others, but never while somebody holds it exclusively."""
        self._change(fcntl.LOCK_SH)

    def acquire_exclusive(self) -> None:
        """Have the device alone. A shared lock is released first, so others who wait may come before."""
        self._change(fcntl.LOCK_EX)

    @contextlib.contextmanager
    def released(self) -> Iterator[None]:
        """Release the lock while this process compiles or waits; afterwards it is held as before."""
        held = self._held
        self.release()
        try:
            yield
        finally:
            self._change(held)

    def let_exclusive_in(self) -> None:
        """Between two steps of shared work: let a process go first that waits for exclusive use."""
        if self._held == fcntl.LOCK_SH and self._is_queued():
            with self.released():
                pass

    def _is_queued(self) -> bool:
        with self._queue.open("w") as queue:
            try:
                fcntl.flock(queue, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def _change(self, wanted: int) -> None:
        """Let go, then queue: a process that waits for exclusive use is not overtaken by those who would share."""
        if wanted == self._held:
            return
        fcntl.flock(self._handle, _UNLOCKED)
        self._held = _UNLOCKED
        if wanted != _UNLOCKED:
            with self._queue.open("w") as queue:
                fcntl.flock(queue, fcntl.LOCK_EX)
                fcntl.flock(self._handle, wanted)
            self._held = wanted


class DeviceMemory:
    """``total`` bytes of a device's memory, reserved by this user's processes in the order in which they ask.

    A reservation is a file that its holder keeps locked: the operating system drops the lock when the holder dies.
    """

    def __init__(self, device: str, total: int) -> None:
        self.total = total
        self._gate = _file(f"{device}-gate")
        self._folder = _file(f"{device}-room")
        self._folder.mkdir(mode=0o700, exist_ok=True)

    @contextlib.contextmanager
    def reserve(self, wanted: int, cancelled: threading.Event | None = None) -> Iterator[int]:
        """Wait until ``wanted`` bytes (at most ``total``) are free beside all earlier reservations; yields how many were reserved.

        Raises ReservationCancelled when ``cancelled`` is set before that.
        """
        wanted = min(wanted, self.total)
        with self._exclusively():
            number = 1 + max((int(p.name.partition("-")[0]) for p in self._folder.iterdir()), default=0)
            mine = self._folder / f"{number:09d}-{wanted}"
            handle = mine.open("w")
            fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            while self._before(mine) + wanted > self.total:
                if cancelled is not None and cancelled.is_set():
                    raise ReservationCancelled
                time.sleep(_POLL_S)
            yield wanted
        finally:
            mine.unlink(missing_ok=True)
            handle.close()

    @contextlib.contextmanager
    def _exclusively(self) -> Iterator[None]:
        with self._gate.open("w") as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)
            yield

    def _before(self, mine: Path) -> int:
        """Bytes reserved before ``mine``; reservations whose holder has died are removed."""
        reserved = 0
        with self._exclusively():
            for path in self._folder.iterdir():
                if path.name >= mine.name:
                    continue
                try:
                    with path.open("r+") as other:
                        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        path.unlink()
                except BlockingIOError:
                    reserved += int(path.name.partition("-")[2])
                except FileNotFoundError:
                    continue
        return reserved


class ReservationCancelled(Exception):
    """The reservation was cancelled while it waited."""


class MemoryReservation:
    """A reservation that one thread may wait for while another goes on; it is kept until the end. A context manager."""

    def __init__(self, memory: DeviceMemory, wanted: int) -> None:
        self.bytes = 0
        """Bytes reserved; 0 before :meth:`wait` has returned."""
        self._memory, self._wanted = memory, wanted
        self._cancelled = threading.Event()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.cancel()
        self._stack.close()

    def wait(self) -> None:
        """Return once the memory is reserved. Raises ReservationCancelled."""
        if not self.bytes:
            self.bytes = self._stack.enter_context(self._memory.reserve(self._wanted, self._cancelled))

    def cancel(self) -> None:
        """End the waiting: the memory is not needed any more."""
        self._cancelled.set()
