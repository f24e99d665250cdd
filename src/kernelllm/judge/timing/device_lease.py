"""A worker's line to the device: it has no turn of its own, and asks its judge for what it needs in the middle of a command."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from kernelllm.judge.transport.protocol import Turns
from kernelllm.pool.locks import Turn

MOST_OWNED_S = 30.0
"""Seconds for which one worker may have the device alone, to choose among configurations."""
MOST_WAITED_S = 600.0
"""Seconds of waiting for others in one command beyond which its deadline is not put off any more."""


class Line:
    """``turn``: the judge's (None: there is nobody to take turns with); ``alone``: whether the worker may own the device to measure."""

    def __init__(self, turn: Turn | None = None, *, alone: bool = False) -> None:
        self._turn, self._alone = turn, alone
        self._lent = False
        self._left, self._owned_since = MOST_OWNED_S, 0.0
        self.waited = 0.0
        """Seconds that the worker waited for others in the present command."""

    @contextlib.contextmanager
    def command(self) -> Iterator[None]:
        """Around one command. A judge that shares the device shares it again afterwards; one that owns it lends nothing."""
        self._lent = self._turn is not None and self._turn.shared
        self.waited = 0.0
        try:
            yield
        finally:
            self.wants(Turns.SHARE)

    def wants(self, what: str) -> float:
        """Do what a worker wants; what it says is not trusted, so that anything else is a wish to share. Seconds that it waited."""
        if self._turn is None or not self._lent:
            return 0.0
        start = time.monotonic()
        if self._owned_since:
            self._left -= start - self._owned_since
            self._owned_since = 0.0
        if what == Turns.REST:
            self._turn.rest()
            return 0.0
        if what == Turns.OWN and self._alone and self._left > 0:
            self._turn.own()
            self._owned_since = time.monotonic()
        else:
            self._turn.share()
        waited = min(time.monotonic() - start, max(MOST_WAITED_S - self.waited, 0.0))
        self.waited += waited
        return waited
