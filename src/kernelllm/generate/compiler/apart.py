"""The compiler in a process of its own.

While it lowers, it puts a stand-in for the GPU's driver into torch, which a judge in the same process would meet; and it
holds the interpreter's lock, which a judge that measures needs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from kernelllm.core.errors import KernelLLMError, WorkerError
from kernelllm.core.types import Attempt, Candidate, Problem
from kernelllm.pool.local import LocalPool, Slot

Write = Callable[[Problem, int, Sequence[Attempt]], Iterator[Candidate]]


class Begin(msgspec.Struct, frozen=True):
    """Start on a problem; what was left of the last one is dropped."""

    problem: Problem
    n: int
    feedback: tuple[Attempt, ...]


class Next(msgspec.Struct, frozen=True):
    """One more candidate."""


class Apart:
    """Runs ``write`` (importable, or a bound method of something that pickles) in another process, which starts when first needed."""

    def __init__(self, write: Write) -> None:
        self._pool: LocalPool[Begin | Next, Any] = LocalPool(_Writing(write), _answer, daemon=True)

    def candidates(self, problem: Problem, n: int, feedback: Sequence[Attempt]) -> Iterator[Candidate]:
        """What ``write`` yields, one at a time. Raises what it raises; WorkerError where the process was lost."""
        self._ask(Begin(problem, n, tuple(feedback)))
        while (candidate := self._ask(Next())) is not None:
            yield candidate

    def close(self) -> None:
        """End the process."""
        self._pool.close(grace_s=0.5)

    def _ask(self, request: Begin | Next) -> Any:
        done = self._pool.call(request)
        if done.error:
            raise WorkerError(f"The compiler's process failed: {done.error.strip().splitlines()[-1]}")
        if isinstance(done.result, KernelLLMError):
            raise done.result
        return done.result


class _Writing:
    """What the other process holds: ``write``, and how far it has come."""

    def __init__(self, write: Write) -> None:
        self.write = write
        self.rest: Iterator[Candidate] = iter(())

    def __call__(self, slot: Slot) -> _Writing:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # it needs no GPU, and a context would take memory on one
        return self


def _answer(state: _Writing, request: Begin | Next) -> Candidate | KernelLLMError | None:
    if isinstance(request, Begin):
        state.rest = state.write(request.problem, request.n, request.feedback)
        return None
    try:
        return next(state.rest, None)
    except KernelLLMError as error:
        return error
