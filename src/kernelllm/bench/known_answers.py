"""Writers that replay stored answers, which are judged anew without asking a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from kernelllm.bench import kernelbench_files
from kernelllm.core.store import Run
from kernelllm.core.types import Attempt, Candidate, Draft, Problem
from kernelllm.core.writer import Writer


class KnownAnswers(Writer):
    """A writer that hands out drafts that exist already: same answers, new judge."""

    in_pool = False
    concurrency = 4
    model: str
    """Who wrote them."""
    n: int
    """Samples that a problem has."""
    rounds = 1
    """Most versions that a sample has."""

    def keys(self, problem: Problem) -> set[tuple[int, int]]:
        """(round, sample) of each answer that there is to a problem."""
        raise NotImplementedError


class StoredDrafts(KnownAnswers):
    """The drafts of an earlier run."""

    def __init__(self, run: Run) -> None:
        told = run.info().settings
        self.name = f"stored/{run.id}"
        self.model, self.n, self.rounds = str(told.get("model", self.name)), int(told.get("n", 1)), int(told.get("rounds", 1))
        self._run = run

    @cached_property
    def _keys(self) -> dict[str, set[tuple[int, int]]]:
        found: dict[str, set[tuple[int, int]]] = {}
        for name, *key in sorted(self._run.keys()):
            found.setdefault(name, set()).add((key[0], key[1]))
        return found

    def keys(self, problem: Problem) -> set[tuple[int, int]]:
        """Round and sample of each attempt that the run has for a problem."""
        return self._keys.get(problem.name, set())

    def drafts(self, problem: Problem, n: int, feedback: Sequence[Attempt] = (), first: int = 0) -> Iterator[Draft]:
        """The stored drafts with sample index ``first`` to ``first + n - 1``, of the round after ``feedback``."""
        asked = feedback[-1].round + 1 if feedback else 0
        for attempt in self._run.attempts(problem.name):
            if attempt.round == asked and first <= attempt.candidate.sample < first + n:
                yield Draft(candidate=attempt.candidate, prompt=attempt.prompt, answer=attempt.answer, cost=attempt.cost)


class Generations(KnownAnswers):
    """What is in a folder of KernelBench's generations. Raises UsageError when there is nothing."""

    def __init__(self, folder: Path) -> None:
        self.name = self.model = f"kernelbench/{folder.resolve().name}"
        self._found: dict[tuple[int, int], list[Candidate]] = {}
        for level, number, candidate in kernelbench_files.read_generations(folder):
            self._found.setdefault((level, number), []).append(candidate)
        self.n = 1 + max(c.sample for found in self._found.values() for c in found)

    def keys(self, problem: Problem) -> set[tuple[int, int]]:
        """Round 0 and the sample of each file for a problem."""
        return {(0, candidate.sample) for candidate in self._of(problem)}

    def _of(self, problem: Problem) -> Sequence[Candidate]:
        number = kernelbench_files.problem_number(problem.name)
        return self._found.get(number, ()) if number else ()

    def drafts(self, problem: Problem, n: int, feedback: Sequence[Attempt] = (), first: int = 0) -> Iterator[Draft]:
        """The generations with sample index ``first`` to ``first + n - 1``."""
        for candidate in self._of(problem):
            if not feedback and first <= candidate.sample < first + n:
                yield Draft(candidate=candidate)


class GivenAnswers(KnownAnswers):
    """One candidate for each problem by name, such as the rows of a data set have them."""

    n = 1

    def __init__(self, name: str, answers: Mapping[str, Candidate]) -> None:
        self.name = self.model = name
        self._answers = answers

    def keys(self, problem: Problem) -> set[tuple[int, int]]:
        """One, where there is a candidate."""
        return {(0, 0)} if problem.name in self._answers else set()

    def drafts(self, problem: Problem, n: int, feedback: Sequence[Attempt] = (), first: int = 0) -> Iterator[Draft]:
        """The problem's candidate, as sample 0."""
        if first == 0 and not feedback and problem.name in self._answers:
            yield Draft(candidate=self._answers[problem.name])
