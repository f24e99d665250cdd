"""Replaces the clock for candidate code where there is no GPU: a launch does not take as long as the interpreter needs for it.

By how long a call takes a candidate could tell the interpreter from a GPU, and be right in the interpreter alone.
"""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable

_STEP_S = 5e-6
"""Between two looks at a clock."""
_LOOKS = 64
"""After so many in one call the clock goes on as it does outside: who waits for a time to come must see it come."""
_CLOCKS = ("time", "perf_counter", "monotonic", "process_time", "thread_time")


class _Call:
    """The call of candidate code that runs, if one does (``depth``)."""

    def __init__(self) -> None:
        self.depth = self.looks = 0
        self.began: dict[str, float] = {}


_call = _Call()


def enter() -> None:
    """Candidate code begins to run."""
    if _call.depth == 0:
        _call.looks, _call.began = 0, {}
    _call.depth += 1


def leave() -> None:
    """Candidate code has returned."""
    _call.depth -= 1


def install() -> None:
    """Replace Python's clocks for good (this process and its forks)."""
    for name in _CLOCKS:
        seen = _as_seen(name, getattr(time, name))
        _put(name, seen)
        _put(f"{name}_ns", _in_ns(seen))
    timeit.default_timer = time.perf_counter


def _in_ns(clock: Callable[[], float]) -> Callable[[], int]:
    return lambda: int(clock() * 1e9)


def _put(name: str, clock: Callable[[], float]) -> None:
    clock.__module__, clock.__name__, clock.__qualname__ = "time", name, name
    setattr(time, name, clock)


def _as_seen(name: str, clock: Callable[[], float]) -> Callable[[], float]:
    def seen() -> float:
        now = clock()
        if _call.depth == 0:
            return now
        _call.looks += 1
        began = _call.began.setdefault(name, now)
        goes_on = now - _call.began.setdefault(f"{name} goes on", now) if _call.looks > _LOOKS else 0.0
        return began + _STEP_S * min(_call.looks, _LOOKS) + goes_on

    return seen
