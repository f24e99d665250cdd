"""Who may use a device now: many at once to work on it, one alone to measure on it."""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(device: str) -> Iterator[None]:
    """Hold the named device against every other process of this user on this machine, waiting for it.

    The kernel drops the lock when the holder dies, so a killed run never leaves it taken.
    """
    with _locked(device, fcntl.LOCK_EX):
        yield


@contextmanager
def shared(device: str) -> Iterator[None]:
    """Use the named device beside others, but never while somebody holds it exclusively."""
    with _locked(device, fcntl.LOCK_SH):
        yield


@contextmanager
def _locked(device: str, kind: int) -> Iterator[None]:
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", device)
    folder = Path(tempfile.gettempdir()) / f"kernelllm-locks-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / name).open("w") as handle:
        fcntl.flock(handle, kind)
        try:
            yield
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)
