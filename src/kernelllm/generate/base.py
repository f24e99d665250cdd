"""What writes candidates: the compiler, or a language model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from kernelllm.core.types import Attempt, Candidate, Problem


class Writer(Protocol):
    """A source of candidates for one problem at a time."""

    name: str
    """What ``-m`` calls it."""

    def write(self, problem: Problem, n: int, feedback: Sequence[Attempt] = ()) -> Iterator[Candidate]:
        """At most ``n`` candidates that differ, lazily, one at a time.

        ``feedback`` holds earlier attempts at the same problem. Raises CaptureError or ModelError when not even one can be written.
        """
        ...
