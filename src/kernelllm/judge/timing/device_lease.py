"""What a worker may ask of its judge's device lock. The worker has no lock of its own: it asks in the middle of a command."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from kernelllm.backends.base import DeviceAccess
from kernelllm.pool.locks import DeviceLock

MAX_EXCLUSIVE_S = 30.0
"""Seconds for which one worker may have the device alone, to choose among configurations."""
MAX_WAIT_S = 600.0
"""Seconds of waiting for others in one command beyond which the command's deadline is not put off any more."""


class DeviceLease:
    """The judge's device lock, lent to one worker. ``lock``: None where the device is not shared with anybody.

    ``exclusive_allowed``: whether the worker may have the device alone, to measure configurations.
    """

    def __init__(self, lock: DeviceLock | None = None, *, exclusive_allowed: bool = False) -> None:
        self._lock, self._exclusive_allowed = lock, exclusive_allowed
        self._lent = False
        self._exclusive_left, self._exclusive_since = MAX_EXCLUSIVE_S, 0.0
        self.waited = 0.0
        """Seconds that the worker waited for others in the present command."""

    @contextlib.contextmanager
    def command(self) -> Iterator[None]:
        """A context manager for one command. The lock is lent only while the judge shares the device; afterwards it is shared again."""
        self._lent = self._lock is not None and self._lock.is_shared
        self.waited = 0.0
        try:
            yield
        finally:
            self.request(DeviceAccess.SHARED)

    def request(self, access: str) -> float:
        """Do what a worker asks for; seconds that this waited for others.

        The worker is not trusted: an unknown word is a request to share.
        """
        if self._lock is None or not self._lent:
            return 0.0
        start = time.monotonic()
        if self._exclusive_since:
            self._exclusive_left -= start - self._exclusive_since
            self._exclusive_since = 0.0
        if access == DeviceAccess.RELEASED:
            self._lock.release()
            return 0.0
        if access == DeviceAccess.EXCLUSIVE and self._exclusive_allowed and self._exclusive_left > 0:
            self._lock.acquire_exclusive()
            self._exclusive_since = time.monotonic()
        else:
            self._lock.acquire_shared()
        waited = min(time.monotonic() - start, max(MAX_WAIT_S - self.waited, 0.0))
        self.waited += waited
        return waited
