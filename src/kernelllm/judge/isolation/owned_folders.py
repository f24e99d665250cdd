"""Temporary folders that tell whether the process that made them lives: what a killed one leaves, others remove.

The owner holds a lock on a file in its folder, which ends with the process. A process number would not do: it may be used again, and
another container that shares the folder has numbers of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import threading
import time
from functools import cache
from pathlib import Path

from kernelllm.judge.isolation import folders

PREFIX = "kernelllm-judge-"
_OWNER, _NEW = "owner", ".new"
_SECONDS = 60
"""A folder that has neither file for so long is one that a process of a killed judge made again after it was removed."""


class OwnedFolder:
    """A new folder in the place for temporary ones."""

    def __init__(self) -> None:
        _remove_all_abandoned()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        new = self.path / _NEW
        self._lock = os.open(new, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(OSError):  # some file systems have no locks: nobody else removes it then
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            new.rename(self.path / _OWNER)  # only now: others may try the lock

    def remove(self) -> None:
        """Remove it with all that is in it. Safe to call twice."""
        folders.remove(self.path)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def remove_abandoned(folder: Path) -> None:
    """Remove a folder whose owner, of this user, has died."""
    with contextlib.suppress(OSError):
        if not (folder / _OWNER).exists() and not (folder / _NEW).exists():
            made = os.lstat(folder)
            if stat.S_ISDIR(made.st_mode) and made.st_uid == os.geteuid() and time.time() - made.st_mtime > _SECONDS:
                folders.remove(folder)
            return
        lock = os.open(folder / _OWNER, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(lock).st_uid == os.geteuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                folders.remove(folder)
        finally:
            os.close(lock)


@cache
def _remove_all_abandoned() -> None:
    """Once in a process, beside what else it does."""

    def remove() -> None:
        for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
            remove_abandoned(folder)

    threading.Thread(target=remove, name="kernelllm-abandoned-folders", daemon=True).start()
