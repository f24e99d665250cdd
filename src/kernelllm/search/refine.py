"""``refine``: n conversations of several rounds. A failed version is repaired, a correct one made faster.

Each conversation knows its own attempts only, so that the next round of one can be asked for while another
is still being judged, and a resumed run takes the same course.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kernelllm.core.types import Attempt, Status
from kernelllm.search.strategy import Task, settled


class Refine:
    """n first samples, then a next version of each, ``rounds`` rounds in all."""

    name = "refine"

    def __init__(self) -> None:
        self._rounds = 1
        self._history: dict[int, list[Attempt]] = {}

    def start(self, n: int, rounds: int) -> Iterable[Task]:
        """One request for the first version of every conversation."""
        self._rounds = rounds
        self._history = {}
        return [Task(n=n)]

    def after(self, attempt: Attempt) -> Iterable[Task]:
        """The next version in the conversation of ``attempt``, while there are rounds left."""
        sample = attempt.candidate.sample
        history = self._history.setdefault(sample, [])
        history.append(attempt)
        if attempt.round + 1 >= self._rounds:
            return []
        return [Task(round=attempt.round + 1, first=sample, feedback=tuple(history))]


def is_over(conversation: Sequence[Attempt], rounds: int) -> bool:
    """Whether nothing follows the attempts of one conversation, where a correct version that was not timed ends it."""
    last = conversation[-1]
    return last.round + 1 >= rounds or last.verdict.status is Status.PROBLEM_ERROR or settled(conversation)
