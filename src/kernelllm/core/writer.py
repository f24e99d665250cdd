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


def open_writer(model: str, **options: Any) -> Writer:
    """The writer behind a model's name: a registered writer such as ``compiler``, or a language model as ``provider/name``.

    ``options`` are what that writer's own constructor takes. Raises UnknownName, UsageError.
    """
    name = model.partition("/")[0]
    if name in registry.names("writers"):
        registered: Writer = registry.resolve("writers", name)(**options)
        return registered
    asking: Writer = registry.resolve("writers", "lm")(model, **options)
    return asking
