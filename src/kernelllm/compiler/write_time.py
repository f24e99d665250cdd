"""How long writing may take. Each way of compiling has a share of the time that is left; the next, simpler one follows where it is spent.

The time is that of the thread that writes, so a busy machine changes nothing. It is looked at wherever the compiler goes from one
operator, kernel or pair of kernels to the next.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from kernelllm.core.errors import CaptureError

_END: ContextVar[float] = ContextVar("_END", default=float("inf"))


class OutOfTime(CaptureError):
    """Writing took longer than it may."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """While open, :func:`check` raises after so many seconds of this thread, or when an outer limit ends."""
    mark = _END.set(min(_END.get(), time.thread_time() + seconds))
    try:
        yield
    finally:
        _END.reset(mark)


def left() -> float:
    """Seconds until the limit."""
    return _END.get() - time.thread_time()


def check() -> None:
    """Raise OutOfTime once the limit has passed."""
    if left() < 0:
        raise OutOfTime("Writing took longer than it may.", fix="Give it more (--write-time SECONDS), or use a language model (-m).")


__all__ = ["OutOfTime", "check", "left", "limited"]
