"""The interface of strategies: which drafts to ask for next, without knowing who writes or judges."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Protocol

import msgspec

from kernelllm.core.types import Attempt, Candidate, Problem, Verdict


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A request to the writer: samples ``first`` to ``first + n - 1`` of one round, from the same feedback."""

    round: int = 0
    first: int = 0
    n: int = 1
    feedback: tuple[Attempt, ...] = ()


class Strategy(Protocol):
    """Decides what to ask for. Must be deterministic: a resumed run asks it the same questions again."""

    name: str

    def start(self, n: int, rounds: int) -> Iterable[Task]:
        """The first requests."""
        ...

    def after(self, attempt: Attempt) -> Iterable[Task]:
        """What to ask for once an attempt has been judged."""
        ...


Enough = Literal["any", "own", "none"]
"""Which candidates that are correct and not timed spare further rounds: those of any sample, those of the same one, or none."""


def settled(attempts: Iterable[Attempt]) -> bool:
    """Whether one is correct and was not timed: faster cannot be told from slower, so that a further version could improve nothing."""
    return any(a.verdict.correct and a.verdict.timing is None for a in attempts)


class SearchBudget(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one search. Tokens and dollars are held by the writer, which asks; time is held here."""

    max_seconds: float | None = None
    """Wall time after which nothing new is asked for or judged."""


class VerdictSource(Protocol):
    """What a search needs of a judge (``judge.Judge``)."""

    def judge(self, problem: Problem, candidate: Candidate) -> Verdict:
        """The verdict on one candidate."""
        ...


class Record(Protocol):
    """Where attempts are kept as they happen (``core.store.Run``)."""

    def add(self, attempt: Attempt) -> None:
        """Keep one attempt."""
        ...

    def attempts(self, problem: str | None = None) -> list[Attempt]:
        """The attempts that are kept already."""
        ...
