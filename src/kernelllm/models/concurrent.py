"""n requests to a server at once, each answer handed on as soon as it is there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from kernelllm.core.errors import ModelError
from kernelllm.models.base import Completion


def each_as_it_comes(
    ask: Callable[[int], Completion], first: int, n: int, concurrency: int, cancelled: threading.Event
) -> Iterator[Completion]:
    """``ask(index)`` for every index, at most ``concurrency`` at once.

    When one request fails the answers of the others are handed on all the same and the error is raised at
    the end. Closing the iterator, or ``cancelled``, drops the requests that have not begun.
    """
    if n == 1:
        yield ask(first)
        return
    error: ModelError | None = None
    pool = ThreadPoolExecutor(max_workers=min(n, concurrency), thread_name_prefix="kernelllm-request")
    try:
        waiting: set[Future[Completion]] = {pool.submit(ask, index) for index in range(first, first + n)}
        while waiting and not cancelled.is_set():
            done, waiting = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
            for future in done:
                try:
                    completion = future.result()
                except ModelError as failure:
                    error = error or failure
                else:
                    yield completion
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    if error is not None:
        raise error
