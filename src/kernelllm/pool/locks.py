"""Who may use a device now: many at once to work on it, one alone to measure on it; and who may fill how much of its memory."""

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

_NOTHING = fcntl.LOCK_UN
_LOOK_AGAIN_S = 0.02


def _file(name: str) -> Path:
    folder = Path(tempfile.gettempdir()) / f"kernelllm-locks-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / re.sub(r"[^A-Za-z0-9_.-]", "_", name)


class Turn:
    """A process's turn at a device, against every other process of this user on this machine. A context manager.

    Entering waits for nothing; :meth:`share` and :meth:`own` do. The kernel drops the lock when the holder dies, so a
    killed run never leaves it taken.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._handle = _file(device).open("w")
        self._queue = _file(f"{device}-queue")
        self._held = _NOTHING

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._handle.close()
        self._held = _NOTHING

    def another(self) -> Turn:
        """A turn of its own at the same device, for another thread."""
        return Turn(self._device)

    @property
    def shared(self) -> bool:
        """Whether the device is used beside others now."""
        return self._held == fcntl.LOCK_SH

    def rest(self) -> None:
        """Leave the device to others: nothing is on its way to it, and nothing will be before the next :meth:`share`."""
        self._take(_NOTHING)

    def share(self) -> None:
        """Use the device beside others, but never while somebody owns it."""
        self._take(fcntl.LOCK_SH)

    def own(self) -> None:
        """Have the device alone until the end of the turn. From a shared turn this lets others go first."""
        self._take(fcntl.LOCK_EX)

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """Leave the device to others while this process compiles or waits; afterwards it is held as before."""
        held = self._held
        self.rest()
        try:
            yield
        finally:
            self._take(held)

    def breathe(self) -> None:
        """Between two steps of shared work: let an owner in who waits for all who share to end."""
        if self._held == fcntl.LOCK_SH and self._somebody_waits():
            with self.resting():
                pass

    def _somebody_waits(self) -> bool:
        with self._queue.open("w") as queue:
            try:
                fcntl.flock(queue, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def _take(self, wanted: int) -> None:
        """Let go, then queue: whoever waits to own the device is not overtaken by those who would share it."""
        if wanted == self._held:
            return
        fcntl.flock(self._handle, _NOTHING)
        self._held = _NOTHING
        if wanted != _NOTHING:
            with self._queue.open("w") as queue:
                fcntl.flock(queue, fcntl.LOCK_EX)
                fcntl.flock(self._handle, wanted)
            self._held = wanted


class Room:
    """``total`` bytes of a device's memory, promised to this user's processes in the order in which they ask.

    A promise is a file whose lock its holder keeps: the kernel drops it when the holder dies.
    """

    def __init__(self, device: str, total: int) -> None:
        self.total = total
        self._door = _file(f"{device}-door")
        self._folder = _file(f"{device}-room")
        self._folder.mkdir(mode=0o700, exist_ok=True)

    @contextlib.contextmanager
    def taken(self, wanted: int, dropped: threading.Event | None = None) -> Iterator[int]:
        """Wait until ``wanted`` bytes are free beside all earlier promises (never more than there are in all); yields how many it got.

        Raises Dropped once ``dropped`` is set before that.
        """
        wanted = min(wanted, self.total)
        with self._alone():
            number = 1 + max((int(p.name.partition("-")[0]) for p in self._folder.iterdir()), default=0)
            mine = self._folder / f"{number:09d}-{wanted}"
            handle = mine.open("w")
            fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            while self._before(mine) + wanted > self.total:
                if dropped is not None and dropped.is_set():
                    raise Dropped
                time.sleep(_LOOK_AGAIN_S)
            yield wanted
        finally:
            mine.unlink(missing_ok=True)
            handle.close()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        with self._door.open("w") as door:
            fcntl.flock(door, fcntl.LOCK_EX)
            yield

    def _before(self, mine: Path) -> int:
        """Bytes promised before ``mine``; promises of the dead are taken away."""
        promised = 0
        with self._alone():
            for path in self._folder.iterdir():
                if path.name >= mine.name:
                    continue
                try:
                    with path.open("r+") as other:
                        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        path.unlink()
                except BlockingIOError:
                    promised += int(path.name.partition("-")[2])
                except FileNotFoundError:
                    continue
        return promised


class Dropped(Exception):
    """Memory that was waited for is not needed any more."""


class Place:
    """A promise of memory that one thread may wait for while another goes on, and that is kept until the end. A context manager."""

    def __init__(self, room: Room, wanted: int) -> None:
        self.bytes = 0
        """What was promised; 0 before :meth:`wait` has returned."""
        self._room, self._wanted = room, wanted
        self._dropped = threading.Event()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.drop()
        self._stack.close()

    def wait(self) -> None:
        """Return once there is room. Raises Dropped."""
        if not self.bytes:
            self.bytes = self._stack.enter_context(self._room.taken(self._wanted, self._dropped))

    def drop(self) -> None:
        """End the waiting: nobody needs the memory any more."""
        self._dropped.set()
