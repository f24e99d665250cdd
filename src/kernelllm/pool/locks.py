"""Who may use a device now: many at once to work on it, one alone to measure on it or to fill its memory."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Self

_NOTHING = fcntl.LOCK_UN


class Turn:
    """A process's turn at a device, against every other process of this user on this machine. A context manager.

    Entering waits for nothing; :meth:`share` and :meth:`own` do. The kernel drops the lock when the holder dies, so a
    killed run never leaves it taken.
    """

    def __init__(self, device: str) -> None:
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", device)
        folder = Path(tempfile.gettempdir()) / f"kernelllm-locks-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        self._handle = (folder / name).open("w")
        self._held = _NOTHING

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._handle.close()

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
        self._take(_NOTHING)
        try:
            yield
        finally:
            self._take(held)

    def _take(self, wanted: int) -> None:
        if wanted != self._held:
            fcntl.flock(self._handle, wanted)
            self._held = wanted
