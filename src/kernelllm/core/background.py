"""Daemon threads for background work, which never keep the process alive, and the one lock around torch's global state."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

TORCH = threading.RLock()
"""Held while problem code runs or is traced: torch's generators and default dtype, and what tracing replaces in torch for its time,
belong to the whole process. A writer works in a thread beside the judge."""


class DaemonPool:
    """At most ``workers`` daemon threads, started as they are needed, that run callables in order.

    The callables see to their own errors. ``concurrent.futures`` is not used here because the interpreter
    waits for its threads when it ends.
    """

    def __init__(self, workers: int, name: str) -> None:
        self._workers = max(1, workers)
        self._name = name
        self._lock = threading.Lock()
        self._todo: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads = 0
        self._idle = 0
        self._closed = False

    def submit(self, work: Callable[[], None]) -> None:
        """Run ``work`` in the background; nothing happens after :meth:`close`."""
        with self._lock:
            if self._closed:
                return
            self._todo.put(work)
            if self._idle == 0 and self._threads < self._workers:
                self._threads += 1
                threading.Thread(target=self._run, name=f"{self._name}-{self._threads}", daemon=True).start()
            elif self._idle:
                self._idle -= 1

    def _run(self) -> None:
        while True:
            work = self._todo.get()
            if work is None:
                return
            if not self._closed:
                work()
            with self._lock:
                self._idle += 1

    def close(self) -> None:
        """Drop what has not begun; what is under way goes on and is not waited for."""
        with self._lock:
            self._closed = True
            for _ in range(self._threads):
                self._todo.put(None)
