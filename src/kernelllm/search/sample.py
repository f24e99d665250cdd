"""``sample``: n independent candidates of one prompt. What pass@k is defined on."""

from __future__ import annotations

from collections.abc import Iterable

from kernelllm.core.types import Attempt
from kernelllm.search.strategy import Task


class Sample:
    """Asks for n samples at once and for nothing after them."""

    name = "sample"

    def start(self, n: int, rounds: int) -> Iterable[Task]:
        return [Task(n=n)]

    def after(self, attempt: Attempt) -> Iterable[Task]:
        return []
