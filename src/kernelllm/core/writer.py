"""What writes candidates: the compiler, or a language model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from kernelllm.core import registry
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


def writers_of_their_own() -> list[str]:
    """Names that ``-m`` takes as they are: writers that need no language model."""
    return [name for name in registry.names("writers") if name != "lm"]


def require(model: str) -> str:
    """The first part of a model's name, if a writer or a provider has it. Raises UnknownName with the known names and the nearest one."""
    name = model.partition("/")[0]
    if name not in writers_of_their_own():
        registry.require("models", name, also=writers_of_their_own())
    return name


def open_writer(model: str, **options: Any) -> Writer:
    """The writer behind a model's name: a registered writer such as ``compiler``, or a language model as ``provider/name``.

    ``options`` are what that writer's own constructor takes. Raises UnknownName, UsageError.
    """
    name = require(model)
    if name in writers_of_their_own():
        registered: Writer = registry.resolve("writers", name)(**options)
        return registered
    asking: Writer = registry.resolve("writers", "lm")(model, **options)
    return asking
