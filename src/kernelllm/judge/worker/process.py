"""Small Linux helpers: prctl, descendants through /proc, killing all of them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from pathlib import Path

SET_PDEATHSIG = 1
SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    """prctl(2) with one argument; failures are ignored (they only make cleaning up weaker)."""
    _libc.prctl(option, value, 0, 0, 0)


def die_with_parent() -> None:
    """Ask for SIGKILL when the parent ends; exits at once when it already has."""
    parent = os.getppid()
    prctl(SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def children(pid: int) -> list[int]:
    """Direct children of a process, of all its threads."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError, ValueError):
                found += [int(word) for word in (task / "children").read_text().split()]
    return found


def descendants(pid: int) -> list[int]:
    """All descendants, nearest first."""
    found: list[int] = []
    queue = [pid]
    while queue and len(found) < 100_000:
        below = children(queue.pop(0))
        found += below
        queue += below
    return found


def memory(pid: int) -> tuple[int, int]:
    """Bytes of a process in memory: (its own, shared without a file); zeros when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0, 0
    found = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.startswith(("RssAnon:", "RssShmem:"))}
    return found.get("RssAnon", 0), found.get("RssShmem", 0)


def kill_descendants(seconds: float = 15.0) -> None:
    """Kill and reap until this process has no descendant left. Gives up after ``seconds``."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        below = descendants(os.getpid())
        for signal_number in (signal.SIGSTOP, signal.SIGKILL):  # stop first: a fork bomb must not outrun the killing
            for pid in below:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal_number)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.001)
