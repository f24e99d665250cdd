"""Code of a problem that may never come back, run in a thread that can be given up."""

from __future__ import annotations

import contextvars
import ctypes
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Generic, TypeVar

from kernelllm.problems.seeds import lent

T = TypeVar("T")
_IMPORT_FACTOR = 6
"""So many times longer may it take while it imports something: packages are large, and disks are slow."""


class GivenUp(Exception):
    """What was to be run has not come back in time. ``stack``: where it was then, the innermost frame last."""

    def __init__(self, seconds: float, stack: traceback.StackSummary) -> None:
        super().__init__(f"not back after {seconds:g} s")
        self.stack = stack


class Exited(Exception):
    """What was run raised something that is meant to end the process. No signal reaches its thread, so it is the code's own doing."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(type(error).__name__)
        self.error = error


class _Stop(BaseException):
    """Raised inside the thread that was given up; not an Exception, so that ``except Exception`` in a loop does not swallow it."""


class _Watched(threading.Thread, Generic[T]):
    """Runs a call in the caller's context, and keeps its result or whatever it raised."""

    def __init__(self, call: Callable[[], T]) -> None:
        super().__init__(name="kernelllm-problem", daemon=True)
        self._call, self._context = call, contextvars.copy_context()
        self.result: list[T] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with lent():
                self.result.append(self._context.run(self._call))
        except BaseException as error:  # noqa: BLE001 - SystemExit and KeyboardInterrupt too: no signal reaches this thread
            self.error = error

    def stack(self) -> traceback.StackSummary:
        """The frames that the thread is in, the innermost last."""
        frame = sys._current_frames().get(self.ident or 0)
        return traceback.extract_stack(frame) if frame else traceback.StackSummary()

    def stop(self) -> None:
        """Raise in it. Python code ends at once; a call into C ends when that call does, and nobody waits for it."""
        if self.is_alive():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.ident or 0), ctypes.py_object(_Stop))


def watched(call: Callable[[], T], seconds: float) -> T:
    """``call()``, which may take ``seconds``. The caller holds the generators (:func:`kernelllm.problems.seeds.own_generators`) for it.

    Raises GivenUp where it takes longer, Exited where it raises SystemExit, KeyboardInterrupt and the like, and its own exceptions.
    """
    thread = _Watched(call)
    start = time.monotonic()
    thread.start()
    try:
        thread.join(seconds)
        while thread.is_alive() and time.monotonic() - start < seconds * _IMPORT_FACTOR and _importing(thread.stack()):
            thread.join(seconds / 10)
        if thread.is_alive():
            raise GivenUp(seconds, thread.stack())
    finally:
        thread.stop()
    if isinstance(thread.error, Exception):
        raise thread.error
    if thread.error is not None:
        raise Exited(thread.error)
    return thread.result[0]


def _importing(stack: traceback.StackSummary) -> bool:
    return any(frame.filename.startswith("<frozen importlib") for frame in stack)
