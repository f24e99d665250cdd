"""Repairs out of what a model wrote: a wrong version, what the judge said of it, and the right kernel of its module that is nearest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import SequenceMatcher

from kernelllm.core.types import Attempt, Status
from kernelllm.lm import feedback
from kernelllm.pairs.from_runs import with_before
from kernelllm.pairs.row import Pair


def of_module(wrong: Sequence[Attempt], right: Sequence[str], row: Callable[[int], Pair], most: int) -> list[Pair]:
    """A repair for each of the first ``most`` wrong versions that differ. ``row`` makes a row of a right kernel's number."""
    shown = {feedback.version(attempt): attempt for attempt in wrong if attempt.verdict.status is not Status.PROBLEM_ERROR}
    shown.pop("", None)
    return [with_before(row(nearest(text, right)), attempt, "repair") for text, attempt in list(shown.items())[:most]]


def nearest(text: str, others: Sequence[str]) -> int:
    """Which of the texts has the most lines in common with a text, in order; the first of equals."""
    lines = text.splitlines()
    alike = [SequenceMatcher(None, lines, other.splitlines(), autojunk=False).ratio() for other in others]
    return max(range(len(others)), key=lambda place: alike[place])
