"""One holder at a time for a device: timing on a GPU that somebody else uses means nothing."""

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
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", device)
    folder = Path(tempfile.gettempdir()) / f"kernelllm-locks-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / name).open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)
