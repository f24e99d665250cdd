"""n requests to a server at once, each answer handed on as soon as it is there."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from functools import partial

from kernelllm.core.background import DaemonPool
from kernelllm.core.errors import ModelError
from kernelllm.models.language_model import Completion


def each_as_it_comes(
    ask: Callable[[int], Completion], first: int, n: int, slots: threading.Semaphore, workers: int, cancelled: threading.Event
) -> Iterator[Completion]:
    """``ask(index)`` for every index, ``workers`` at once, each while it holds one of the provider's ``slots``.

    When one request fails the answers of the others are handed on all the same and the error is raised at
    the end. Closing the iterator, or ``cancelled``, drops the requests that have not begun and waits for none.
    """
    done: queue.SimpleQueue[Completion | BaseException] = queue.SimpleQueue()

    def work(index: int) -> None:
        try:
            with slots:
                done.put(ask(index))
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            done.put(error)

    pool = DaemonPool(min(n, workers), "kernelllm-request")
    error: ModelError | None = None
    try:
        for index in range(first, first + n):
            pool.submit(partial(work, index))
        left = n
        while left and not cancelled.is_set():
            try:
                outcome = done.get(timeout=0.2)
            except queue.Empty:
                continue
            left -= 1
            if isinstance(outcome, ModelError):
                error = error or outcome
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                yield outcome
    finally:
        pool.close()
    if error is not None:
        raise error
