"""Defines how much time, memory, disk and how many processes a worker may use, and what its supervisor says about its end."""

from __future__ import annotations

import struct

import msgspec

SIZE = struct.Struct("<Q")
"""What the judge writes to a worker's leash: bytes of arenas that the worker is about to open."""
FLOP_RATE = 1e8
"""FLOPs a second that a kernel should reach in the interpreter: a twentieth of what good tiles do on a free core."""
MOST_PATIENCE = 10


def call_seconds(base: float, flops: float) -> float:
    """What one interpreted call may take, in seconds: ``base``, and longer for a problem of many FLOPs, up to ten times that."""
    return min(base / 2 + flops / FLOP_RATE, base * MOST_PATIENCE) if flops / FLOP_RATE > base / 2 else base


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one worker; 0 means none."""

    memory_bytes: int = 4 * 2**30
    """Memory of the worker and its children together, beyond what a fresh worker has. What they share among them counts, arenas do not."""
    file_bytes: int = 256 * 2**20
    """Largest file it may write."""
    disk_bytes: int = 2 * 2**30
    """Bytes that all files in its folder may take together (looked at twice a second)."""
    files: int = 20_000
    """Files and folders that may be in its folder (counted twice a second)."""
    cpu_s: int = 300
    processes: int = 64
    """Most descendants at once."""


class Spawn(msgspec.Struct, frozen=True):
    """Judge to forkserver: start a worker. Beside it travel three descriptors: worker socket, status pipe (write), leash (read).

    Over the leash the judge writes each :data:`SIZE` of arenas; when its end is closed, the worker is killed."""

    folder: str
    """The worker's own directory; holds the candidate's file."""
    limits: Limits
    sandbox: str | None = None
    """Least sandbox level that will do (None: whatever this machine offers)."""


class Ready(msgspec.Struct, frozen=True):
    """Forkserver to judge: imports are done."""

    versions: dict[str, str]
    """Versions of torch and of what the kernel language needs."""
    pid: int


class Ended(msgspec.Struct, frozen=True):
    """Supervisor to judge, over the status pipe: how a worker ended. Trusted (candidate code never runs in the supervisor)."""

    code: int | None = None
    """Exit code, None when a signal ended it."""
    signal: int = 0
    reason: str = ""
    """``memory``, ``processes``, ``disk`` or ``sandbox: ...`` when the supervisor ended it, else empty."""
    printed: bytes = b""
    """First and last part of its standard output and error."""
    printed_bytes: int = 0
    processes: int = 0
    peak_bytes: int = 0
    sandbox: str = ""
    """Level of the sandbox in force."""
