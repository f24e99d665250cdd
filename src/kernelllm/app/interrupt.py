"""Ctrl-C that cannot get lost: some libraries swallow KeyboardInterrupt where they catch everything."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def remembered() -> Iterator[Callable[[], None]]:
    """Inside it Ctrl-C raises KeyboardInterrupt as usual; the function that it yields raises it again if that was swallowed.

    Does nothing outside the main thread, or where somebody else handles the signal.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield lambda: None
        return
    seen = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal seen
        seen = True
        raise KeyboardInterrupt

    def check() -> None:
        if seen:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, note)
    try:
        yield check
    except Exception as error:
        if seen:  # the interrupt in other clothes: Python 3.11 makes a SystemError of one that falls into its parser
            raise KeyboardInterrupt from error
        raise
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
