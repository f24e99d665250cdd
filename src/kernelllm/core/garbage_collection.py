"""How often Python collects garbage, in processes that are kernelllm's own."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
from pathlib import Path


def collect_seldom() -> None:
    """Kernels are many small objects, of which few are in cycles: looking through all imports again and again takes a tenth of the time."""
    gc.set_threshold(20_000, 20, 20)


_GROWN = 2**28
_PAGE = os.sysconf("SC_PAGE_SIZE")
_least: list[int] = []


def collect_if_grown() -> None:
    """Collect where the process holds a quarter of a gigabyte more than it did: arrays in cycles are few objects, and may be all memory."""
    if _least and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 <= _least[0] + _GROWN:
        return  # the process never held so much; to ask what it holds now takes ten times as long
    now = _resident()
    if _least and now > _least[0] + _GROWN:
        gc.collect()
        _least[:] = [_resident()]
    else:
        _least[:] = [min([now, *_least])]


def _resident() -> int:
    """Bytes of memory that the process has; 0 where that cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    return 0


__all__ = ["collect_if_grown", "collect_seldom"]
