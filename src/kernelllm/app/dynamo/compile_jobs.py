"""Graphs that are being written in the background: one job for equal graphs, and how long first calls may wait for it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelllm.app.dynamo.writing import WriteResult, WritingProcesses

_lock = threading.Lock()
_pending: dict[str, Future[WriteResult]] = {}
_processes: WritingProcesses | None = None
_waited = 0.0


def processes() -> WritingProcesses:
    """The writing processes of this process."""
    global _processes
    from kernelllm.app.dynamo.writing import WritingProcesses

    with _lock:
        _processes = _processes or WritingProcesses()
        return _processes


def submit(key: str, write: Callable[[], WriteResult]) -> Future[WriteResult]:
    """The future result of ``write``, which runs in a thread. Where a job with this key runs already, its future."""
    with _lock:
        future = _pending.get(key)
        if future is not None:
            return future
        future = _pending[key] = Future()

    def run() -> None:
        try:
            future.set_result(write())
        except BaseException as error:  # noqa: BLE001 - raised where the answer is looked at
            future.set_exception(error)
        with _lock:
            del _pending[key]

    threading.Thread(target=run, name="kernelllm-graph", daemon=True).start()
    return future


@contextlib.contextmanager
def counted_as_waiting() -> Iterator[None]:
    """A context manager: the time inside it counts as waiting of first calls (the option ``wait_s``)."""
    global _waited
    start = time.perf_counter()
    try:
        yield
    finally:
        with _lock:
            _waited += time.perf_counter() - start


def wait_for(future: Future[WriteResult], most_s: float) -> bool:
    """Whether the answer is there; waits for it while all calls of this have waited for less than that many seconds together."""
    with counted_as_waiting():
        wait([future], max(0.0, most_s - _waited))
    return future.done()


def finish(timeout_s: float | None = None) -> bool:
    """Wait until nothing is being written any more; whether that is so."""
    with _lock:
        futures = list(_pending.values())
    return not wait(futures, timeout_s).not_done
