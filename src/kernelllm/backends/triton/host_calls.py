"""What host code asks of Triton in this thread: launches, and the memory that kernels may need besides."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import triton
from triton.runtime.jit import JITFunction

_lock = threading.Lock()


@contextmanager
def watched(launched: Callable[[], None], set_up: Callable[[Callable[[], None]], None]) -> Iterator[None]:
    """As :meth:`Backend.watched_calls` says. One thread at a time, since both names are replaced for all."""
    thread = threading.get_ident()
    with _lock:
        run, set_allocator = JITFunction.run, triton.set_allocator

        def noting_run(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() == thread:
                launched()
            return run(kernel, *args, **kwargs)

        def noting_set(allocator: Any) -> None:
            if threading.get_ident() == thread:
                set_up(partial(set_allocator, allocator))
            set_allocator(allocator)

        JITFunction.run, triton.set_allocator = noting_run, noting_set
        try:
            yield
        finally:
            JITFunction.run, triton.set_allocator = run, set_allocator
