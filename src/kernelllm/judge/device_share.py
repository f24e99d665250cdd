"""Holds the GPU for one candidate's judge: a lock against other judges, which its worker is lent, and a reservation of its memory."""

from __future__ import annotations

import contextlib
import gc
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from kernelllm.backends.base import DeviceAccess
from kernelllm.pool.locks import DeviceLock, DeviceMemory, MemoryReservation

MAX_EXCLUSIVE_S = 30.0
"""Seconds for which one worker may have the device alone, to choose among configurations."""
MAX_WAIT_S = 600.0
"""Seconds of waiting for others in one command beyond which the command's deadline is not put off any more."""
_USABLE = 0.9
"""Share of a GPU's memory that all judges together may reserve."""
_KEPT_BYTES = 2**28
"""A judge's allocator may hold on to this much memory between two candidates."""


@dataclass(frozen=True)
class DeviceShare:
    """The lock and the reservation of one judge. With neither (on a CPU, or with nobody to share with) nothing waits."""

    lock: DeviceLock | None = None
    reservation: MemoryReservation | None = None

    @property
    def bytes(self) -> int | None:
        """Memory reserved; None where nothing limits it."""
        return self.reservation.bytes if self.reservation else None

    def acquire_shared(self) -> None:
        """Use the device beside other judges."""
        if self.lock is not None:
            self.lock.acquire_shared()

    def acquire_exclusive(self) -> None:
        """Use the device alone, to measure."""
        if self.lock is not None:
            self.lock.acquire_exclusive()

    def let_exclusive_in(self) -> None:
        """Between two steps: let a judge go first that waits for exclusive use."""
        if self.lock is not None:
            self.lock.let_exclusive_in()

    def released(self) -> contextlib.AbstractContextManager[None]:
        """Inside it the lock is released; afterwards it is held as before."""
        return self.lock.released() if self.lock is not None else contextlib.nullcontext()

    def lease(self, *, exclusive_allowed: bool) -> DeviceLease:
        """What a worker may ask of this lock."""
        return DeviceLease(self.lock, exclusive_allowed=exclusive_allowed)

    @contextlib.contextmanager
    def for_thread(self) -> Iterator[DeviceShare]:
        """The same share with a lock of its own, for another thread."""
        if self.lock is None:
            yield self
            return
        with self.lock.duplicate() as lock:
            yield DeviceShare(lock, self.reservation)

    def wait_for_memory(self) -> None:
        """Wait for the reservation without the lock: whoever has the memory may want the device alone."""
        if self.reservation is None:
            return
        if self.lock is not None:
            self.lock.release()
        self.reservation.wait()

    def cancel_waiting(self) -> None:
        """Stop waiting for a reservation that nobody needs any more."""
        if self.reservation is not None:
            self.reservation.cancel()


@contextlib.contextmanager
def share_device(device: str, wanted_bytes: int | None) -> Iterator[DeviceShare]:
    """Share ``device`` with other judges while one candidate is judged. ``wanted_bytes``: None for all of its memory."""
    if device == "cpu":
        yield DeviceShare()
        return
    key = device_key(device)
    memory = DeviceMemory(key, int(_USABLE * torch.cuda.get_device_properties(device).total_memory))
    with MemoryReservation(memory, memory.total if wanted_bytes is None else wanted_bytes) as reservation, DeviceLock(key) as lock:
        try:
            yield DeviceShare(lock, reservation)
        except BaseException as error:  # the error's frames hold tensors, and the next to get the reservation needs their memory
            traceback.clear_frames(error.__traceback__)
            gc.collect()
            raise
        finally:
            if torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > _KEPT_BYTES:
                torch.cuda.empty_cache()  # other processes see only what is given back


def device_key(device: str) -> str:
    """A name of the GPU that is the same in every process, whatever number it has there."""
    return f"gpu-{torch.cuda.get_device_properties(torch.device(device)).uuid}"


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
