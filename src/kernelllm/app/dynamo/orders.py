"""What is being written for this process: one order for equal graphs, and how long first calls may wait for it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelllm.app.dynamo.writing import WritingProcesses, Written

_lock = threading.Lock()
_pending: dict[str, Future[Written]] = {}
_processes: WritingProcesses | None = None
_waited = 0.0


def processes() -> WritingProcesses:
    """Those of this process."""
    global _processes
    from kernelllm.app.dynamo.writing import WritingProcesses

    with _lock:
        _processes = _processes or WritingProcesses()
        return _processes


def ordered(key: str, write: Callable[[], Written]) -> Future[Written]:
    """The answer of ``write``, which runs in a thread; of the one that runs already for an equal graph."""
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
def meanwhile() -> Iterator[None]:
    """What a first call does while its file is being written counts as waited."""
    global _waited
    start = time.perf_counter()
    try:
        yield
    finally:
        with _lock:
            _waited += time.perf_counter() - start


def wait_for(future: Future[Written], most_s: float) -> bool:
    """Whether the answer is there; waits for it while all calls of this have waited for less than that many seconds together."""
    with meanwhile():
        wait([future], max(0.0, most_s - _waited))
    return future.done()


def finish(timeout_s: float | None = None) -> bool:
    """Wait until nothing is being written any more; whether that is so."""
    with _lock:
        futures = list(_pending.values())
    return not wait(futures, timeout_s).not_done
