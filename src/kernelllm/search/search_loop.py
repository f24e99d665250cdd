"""The search loop: the next drafts are written in the background while earlier ones are judged; each attempt is kept at once."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

import msgspec

from kernelllm.core import registry
from kernelllm.core.background import DaemonPool
from kernelllm.core.errors import BudgetExceeded, KernelLLMError
from kernelllm.core.types import Attempt, Draft, Problem, Status, Verdict, best, consecutive_ranges
from kernelllm.core.writer import Writer
from kernelllm.search.strategy import Enough, Record, SearchBudget, Strategy, Task, VerdictSource, settled

Event = Callable[[str, dict[str, Any]], None]
"""Told ``("drafted", {...})`` and ``("judged", {...})`` as they happen, from any thread."""


class _TaskEnded(msgspec.Struct, frozen=True):
    """A task has come to its end, with the error that ended it."""

    task: Task
    error: BaseException | None


class Search:
    """One search for one problem: iterate over it to run it and get its attempts as they are judged.

    Once a candidate is correct and was not timed, no further round is asked for: faster cannot be told from slower. With ``enough``
    ``own`` that holds for the rounds of the same sample alone, so that samples are conversations of their own; with ``none`` every round
    is asked for, whatever was judged before.
    After the iteration ``stopped`` says why it ended early (empty: it did not) and ``errors`` holds what
    single requests failed with. Raises the first such error when there is no attempt at all.
    """

    def __init__(
        self,
        problem: Problem,
        writer: Writer,
        judge: VerdictSource,
        *,
        strategy: str | Strategy = "sample",
        n: int = 1,
        rounds: int = 1,
        enough: Enough = "any",
        budget: SearchBudget | None = None,
        record: Record | None = None,
        on_event: Event | None = None,
    ) -> None:
        self.problem = problem
        self.writer = writer
        self.judge = judge
        self.strategy: Strategy = registry.resolve("strategies", strategy)() if isinstance(strategy, str) else strategy
        self.n = n
        self.rounds = rounds
        self.enough = enough
        self.budget = budget or SearchBudget()
        self.record = record
        self.attempts: list[Attempt] = []
        self.errors: list[KernelLLMError] = []
        self.stopped = ""
        self.settled = False
        """Whether rounds were spared: a correct candidate was found and is not timed, so that there is nothing to improve."""
        self._event = on_event or (lambda name, data: None)
        self._halt = threading.Event()
        self._queue: queue.SimpleQueue[tuple[Task, Draft] | _TaskEnded] = queue.SimpleQueue()
        self._pool: DaemonPool | None = None
        self._open = 0
        self._deadline: float | None = None

    def __iter__(self) -> Generator[Attempt, None, None]:
        known = {(a.round, a.candidate.sample): a for a in (self.record.attempts(self.problem.name) if self.record else [])}
        if self.budget.max_seconds is not None:
            self._deadline = time.monotonic() + self.budget.max_seconds
        workers = max(1, self.writer.concurrency)
        self._pool = DaemonPool(workers, "kernelllm-writer")
        try:
            yield from self._replayed(self.strategy.start(self.n, self.rounds), known)
            while self._open:
                if (attempt := self._next()) is not None:
                    yield attempt
                    yield from self._replayed(self.strategy.after(attempt), known)
        finally:
            self._stop_writing()
        if self.errors and not self.attempts:
            raise self.errors[0]

    @property
    def best(self) -> Attempt | None:
        """The best correct attempt so far, None when none is correct."""
        return best(self.attempts)

    @property
    def message(self) -> str:
        """Why there are fewer attempts than were asked for; empty when there are not."""
        stopped = "The time is up." if self.stopped == "time" else self.stopped
        return " ".join(text for text in (stopped, *(str(error) for error in self.errors[:1])) if text)

    def _replayed(self, tasks: Iterable[Task], known: dict[tuple[int, int], Attempt]) -> Iterator[Attempt]:
        """Attempts that a resumed run has already, at every depth; what is missing is asked for."""
        todo = deque(tasks)
        while todo:
            task = todo.popleft()
            samples = range(task.first, task.first + task.n)
            for start, count in consecutive_ranges([s for s in samples if (task.round, s) not in known]):
                if not self._spared(task):
                    self._ask(msgspec.structs.replace(task, first=start, n=count))
            for sample in samples:
                attempt = known.get((task.round, sample))
                if attempt is not None:
                    self.attempts.append(attempt)
                    yield attempt
                    todo.extend(self.strategy.after(attempt))

    def _spared(self, task: Task) -> bool:
        """Whether a later round could improve nothing."""
        if not task.round or self.enough == "none":
            return False
        found = settled(self.attempts if self.enough == "any" else task.feedback)
        self.settled = self.settled or found
        return found or any(a.verdict.status is Status.PROBLEM_ERROR for a in task.feedback[-1:])

    def _ask(self, task: Task) -> None:
        """Have a task written in the background."""
        if self.stopped or self._pool is None:
            return
        self._open += 1
        self._pool.submit(lambda: self._write(task))

    def _write(self, task: Task) -> None:
        error: BaseException | None = None
        started = time.monotonic()
        try:
            for draft in self.writer.drafts(self.problem, task.n, task.feedback, task.first):
                if not draft.cost.generate_s:  # a writer that does not say how long it took: the compiler
                    cost = msgspec.structs.replace(draft.cost, generate_s=round(time.monotonic() - started, 4))
                    draft = msgspec.structs.replace(draft, cost=cost)
                started = time.monotonic()
                self._queue.put((task, draft))
                self._event("drafted", {"round": task.round, "sample": draft.candidate.sample})
                if self._halt.is_set():
                    break
        except BaseException as caught:  # noqa: BLE001 - handed to the loop, which raises it in its own thread
            error = caught
        self._queue.put(_TaskEnded(task, error))

    def _next(self) -> Attempt | None:
        """The next draft judged, None when a task ended or the time is up."""
        try:
            left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
            item = self._queue.get(timeout=left)
        except queue.Empty:
            self._stop("time")
            return None
        if isinstance(item, _TaskEnded):
            self._open -= 1
            self._note(item.error)
            return None
        if self.stopped == "time":
            return None
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self._stop("time")
            return None
        return self._judged(*item)

    def _judged(self, task: Task, draft: Draft) -> Attempt:
        started = time.monotonic()
        unusable = Verdict(status=Status.INVALID, message=draft.reason) if draft.reason else None
        verdict = unusable or self.judge.judge(self.problem, draft.candidate)
        seconds = 0.0 if verdict.recorded else verdict.seconds or time.monotonic() - started
        cost = draft.cost.judged(verdict, 0.0 if draft.reason else seconds)
        attempt = Attempt(
            problem=self.problem.name,
            candidate=draft.candidate,
            verdict=verdict,
            cost=cost,
            round=task.round,
            prompt=draft.prompt,
            answer=draft.answer,
        )
        if self.record is not None:
            self.record.add(attempt)
        self.attempts.append(attempt)
        self._event("judged", {"round": task.round, "sample": draft.candidate.sample, "status": str(verdict.status)})
        return attempt

    def _note(self, error: BaseException | None) -> None:
        if error is None:
            return
        if isinstance(error, BudgetExceeded):
            self.stopped = self.stopped or str(error)
        elif isinstance(error, KernelLLMError):
            self.errors.append(error)
        else:
            raise error

    def _stop(self, why: str) -> None:
        """Ask for nothing more; what is under way is told to end."""
        self.stopped = self.stopped or why
        self._stop_writing()
        self._open = 0

    def _stop_writing(self) -> None:
        if self._pool is None:
            return
        pool, self._pool = self._pool, None
        unfinished = self._open > 0
        self._halt.set()
        pool.close()
        if unfinished:
            self.writer.cancel()


def run(problem: Problem, writer: Writer, judge: VerdictSource, **options: Any) -> Iterator[Attempt]:
    """The attempts of a :class:`Search` (see there for the options), as they are judged."""
    return iter(Search(problem, writer, judge, **options))
