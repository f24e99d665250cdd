"""The compiler in a process of its own.

While it lowers, it puts a stand-in for the GPU's driver into torch, which a judge in the same process would meet. It also holds
the interpreter's lock, which a judge that measures needs.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import msgspec

from kernelllm.core.errors import KernelLLMError, WorkerError
from kernelllm.core.types import Attempt, Candidate, Problem
from kernelllm.pool.local import LocalPool, Slot

Write = Callable[[Problem, int, Sequence[Attempt]], Iterator[Candidate]]


class Start(msgspec.Struct, frozen=True):
    """Start on a problem. What was left of the last one is dropped."""

    number: int
    problem: Problem
    n: int
    feedback: tuple[Attempt, ...]


class Next(msgspec.Struct, frozen=True):
    """One more candidate of the start with this number. The answer is None if another problem was started since."""

    number: int


class SubprocessWriter:
    """Runs ``write`` (importable, or a bound method of something that pickles) in another process, which starts when first needed."""

    def __init__(self, write: Write, *, forked: bool = False, ahead: bool = True) -> None:
        """``forked``: it starts now, as a copy of this process, which must have no other thread and no GPU yet. ``ahead``: candidates are
        written before they are asked for."""
        self._ahead = ahead
        self._pool: LocalPool[Start | Next, Any] = LocalPool(_Server(write), _answer, daemon=True, forked=forked)
        if forked:
            self._ask(Next(-1))
        self._numbers = itertools.count(1)

    def candidates(self, problem: Problem, n: int, feedback: Sequence[Attempt]) -> Iterator[Candidate]:
        """What ``write`` yields, one at a time.

        Raises what ``write`` raises; WorkerError where the process was lost.
        """
        number = next(self._numbers)
        self._ask(Start(number, problem, n, tuple(feedback)))
        ahead = self._asked(Next(number))
        for count in range(1, n + 1):
            candidate = ahead.result()
            if candidate is None:
                return
            if count < n and self._ahead:
                ahead = self._asked(Next(number))
            yield candidate
            if count < n and not self._ahead:
                ahead = self._asked(Next(number))

    def close(self) -> None:
        """End the process."""
        self._pool.close(grace_s=0.5)

    def _asked(self, request: Start | Next) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(self._ask(request))
            except BaseException as error:  # noqa: BLE001 - raised where the answer is looked at
                future.set_exception(error)

        threading.Thread(target=run, name="kernelllm-compiler", daemon=True).start()
        return future

    def _ask(self, request: Start | Next) -> Any:
        done = self._pool.call(request)
        if done.error:
            raise WorkerError(f"The compiler's process failed: {done.error.strip().splitlines()[-1]}")
        if isinstance(done.result, KernelLLMError):
            raise done.result
        return done.result


class _Server:
    """The other process's state: ``write``, and how far it has come."""

    def __init__(self, write: Write) -> None:
        self.write = write
        self.number = 0
        self.rest: Iterator[Candidate] = iter(())

    def __call__(self, slot: Slot) -> _Server:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # writing needs no GPU, and a context would take memory on one
        return self


def _answer(server: _Server, request: Start | Next) -> Candidate | KernelLLMError | None:
    if isinstance(request, Start):
        server.number = request.number
        server.rest = server.write(request.problem, request.n, request.feedback)
        return None
    if request.number != server.number:
        return None
    try:
        return next(server.rest, None)
    except KernelLLMError as error:
        return error
