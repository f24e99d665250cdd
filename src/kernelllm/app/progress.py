"""Progress on standard error: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Protocol, Self

import click

from kernelllm.core.text import printable
from kernelllm.core.types import Attempt

if TYPE_CHECKING:
    from rich.status import Status

LOOK_S = 10.0
"""Seconds between two looks at the GPUs."""
FIRST_S = 5.0
"""Seconds until the first line of plain output, and the least between two."""
TWICE_S = 2.0
"""A second Ctrl-C within so many seconds means the first."""
LOGGER = logging.getLogger("kernelllm")


class Progress(Protocol):
    """Where long work reports how far it is."""

    def stage(self, text: str) -> None:
        """Work on ``text`` begins."""

    def note(self, text: str) -> None:
        """Something is finished and worth a line of its own."""


class Silent:
    """Reports to nobody."""

    def stage(self, text: str) -> None:
        """Say nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""


class Console(logging.Handler):
    """Reports to standard error, with the warnings that kernelllm logs meanwhile. A context manager: the live line is gone when it ends."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._start = time.monotonic()
        self._status: Status | None = None
        self._last = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Show a warning: a retry, for example."""
        self.note(record.getMessage())

    def __enter__(self) -> Self:
        LOGGER.addHandler(self)
        if sys.stderr.isatty():
            from rich.console import Console as RichConsole
            from rich.status import Status

            self._status = Status("", console=RichConsole(stderr=True))
            self._status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        LOGGER.removeHandler(self)
        if self._status is not None:
            self._status.stop()

    def stage(self, text: str) -> None:
        """Show what begins; the same text again says nothing new."""
        text = printable(text)
        if text == self._last:
            return
        self._last = text
        if self._status is not None:
            from rich.markup import escape

            self._status.update(escape(f"{text} ..."))
        else:
            self._line(f"{text} ...")

    def note(self, text: str) -> None:
        """Show what is finished, for good."""
        text = printable(text)
        if self._status is not None:
            self._status.console.print(f"{self._clock()} {text}", markup=False, highlight=False, soft_wrap=True)
        else:
            self._line(text)

    def _line(self, text: str) -> None:
        click.echo(f"{self._clock()} {text}", err=True)

    def _clock(self) -> str:
        return f"{time.monotonic() - self._start:6.1f} s"


class Meter:
    """Counts attempts as they come; ``stored`` are those that an earlier command made."""

    def __init__(self, model: str, wanted: int, stored: Sequence[Attempt] = ()) -> None:
        self.model, self.wanted = model, wanted
        self.done, self.correct = len(stored), sum(a.verdict.correct for a in stored)
        self.usd: float | None = None
        self._before, self._start = self.done, time.monotonic()
        self._looked, self._busy = 0.0, ""
        self._line = self._start
        for attempt in stored:
            self._pay(attempt)

    def add(self, attempt: Attempt) -> None:
        """One more attempt is stored."""
        self.done, self.correct = self.done + 1, self.correct + attempt.verdict.correct
        self._pay(attempt)
        if attempt.verdict.on_gpu:
            self._look()

    @property
    def new(self) -> bool:
        """Whether any attempt came since it was made."""
        return self.done > self._before

    def due(self) -> bool:
        """Whether plain output gets another line: soon after the start and less and less often, at least every minute."""
        now = time.monotonic()
        if now - self._line < min(max(FIRST_S, 0.1 * (now - self._start)), 60.0):
            return False
        self._line = now
        return True

    def text(self) -> str:
        """``MODEL: 50 of 200, 31 correct, 12 a minute, 13 min left, $0.42, GPUs 87 %``."""
        rate = (self.done - self._before) / max(time.monotonic() - self._start, 1e-9)
        left = (self.wanted - self.done) / max(rate, 1e-9)
        parts = [f"{self.done} of {self.wanted}", f"{self.correct} correct", f"{60 * rate:.0f} a minute", f"{duration(left)} left"]
        if self.usd is not None:
            parts.append(f"${self.usd:.2f}")
        if self._busy:
            parts.append(self._busy)
        return f"{self.model}: {', '.join(parts)}"

    def _pay(self, attempt: Attempt) -> None:
        if attempt.cost.usd is not None:
            self.usd = (self.usd or 0.0) + attempt.cost.usd

    def _look(self) -> None:
        """Mean utilisation of all GPUs, as the driver's own tool says; empty where it cannot be had."""
        now = time.monotonic()
        if now - self._looked < LOOK_S and self._looked:
            return
        self._looked = now
        command = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
        try:
            told = subprocess.run(command, capture_output=True, text=True, timeout=2, check=False).stdout.split()
        except (OSError, subprocess.TimeoutExpired):
            return
        known = [int(text) for text in told if text.isdigit()]
        self._busy = f"GPUs {sum(known) / len(known):.0f} %" if known else ""


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, whichever reads well."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


@contextmanager
def remembered_interrupt() -> Iterator[Callable[[], None]]:
    """Inside it Ctrl-C raises KeyboardInterrupt as usual; the function that it yields raises it again if that was swallowed.

    Pressed twice at once it counts once: what is under way is put away in peace.
    Does nothing outside the main thread, or where somebody else handles the signal.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield lambda: None
        return
    seen = False
    last = float("-inf")

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal seen, last
        seen, now = True, time.monotonic()
        if now - last > TWICE_S:
            last = now
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
