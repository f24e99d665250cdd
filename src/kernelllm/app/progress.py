"""What a person sees while something runs: a live line on a terminal, plain lines elsewhere, always on standard error."""

from __future__ import annotations

import logging
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

import click

from kernelllm.core.text import printable

if TYPE_CHECKING:
    from rich.status import Status

HOUSE = logging.getLogger("kernelllm")


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
    """Reports to standard error, with the warnings that the house logs meanwhile. A context manager: the live line is gone when it ends."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._start = time.monotonic()
        self._status: Status | None = None
        self._last = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Show a warning: a retry, for example."""
        self.note(record.getMessage())

    def __enter__(self) -> Self:
        HOUSE.addHandler(self)
        if sys.stderr.isatty():
            from rich.console import Console as RichConsole
            from rich.status import Status

            self._status = Status("", console=RichConsole(stderr=True))
            self._status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        HOUSE.removeHandler(self)
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
