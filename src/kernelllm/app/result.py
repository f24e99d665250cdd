"""What ``optimize`` and ``check`` return: the attempts, the best of them, and how a person reads that."""

from __future__ import annotations

from typing import Any, Final

import msgspec

import kernelllm
from kernelllm.app import verdict_view
from kernelllm.core.types import Attempt, Problem, Verdict

COMPILER: Final = "compiler"
NEXT: Final = "let the compiler write it, which needs no model: the same without -m (model=)"
"""What a person can do whose language model wrote nothing right."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What ``optimize`` found."""

    problem: Problem
    model: str
    best: Attempt | None = None
    """The best correct attempt, None when there is none."""
    attempts: tuple[Attempt, ...] = ()
    """All attempts in the order in which they were judged."""
    path: str | None = None
    """The file that holds the best candidate, None when nothing was written."""
    kept: str | None = None
    """The folder that holds all candidates, None when they were not kept."""
    interrupted: bool = False
    """True when Ctrl-C ended the work early; what was done until then is here."""
    run: str = ""
    """The run in the attempt store; empty for a writer that is not paid for: it needs no store to do the same again."""
    message: str = ""
    """Why there are fewer attempts than were asked for; empty when there are not."""
    seconds: float = 0.0
    version: str = kernelllm.__version__

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on the best candidate, else on the last one; None where none was judged."""
        shown = self.best or (self.attempts[-1] if self.attempts else None)
        return shown.verdict if shown else None

    @property
    def title(self) -> str:
        """Whose kernels these are, and who wrote them."""
        return f"{self.problem.name} by {self.model}"

    def rows(self) -> verdict_view.Rows:
        """The best candidate's verdict, or why there is none, line by line."""
        best = self.best
        if best is not None:
            rows = verdict_view.verdict_rows(best.verdict)
            if len(self.attempts) > 1:
                right = sum(a.verdict.correct for a in self.attempts)
                how = "" if best.verdict.timing else "; nothing was timed: the first in the writer's order"
                rows.insert(1, ("chosen", f"candidate {self.attempts.index(best) + 1} of {len(self.attempts)} ({right} correct){how}"))
            if note := best.candidate.note:
                rows.append(("mended", note.removeprefix("mended: ")) if note.startswith("mended: ") else ("left", note))
            rows.append(("file", self.path or "not written"))
        elif self.attempts:
            rows = [("status", f"none of {len(self.attempts)} candidates is correct; nothing was written")]
            rows += self._wrong_ones()
            rows += verdict_view.findings_rows(self.attempts[-1].verdict)
            if self.model != COMPILER:
                rows.append(("next", f"{NEXT}; or have the model try more often, with -n (n=)"))
        else:
            rows = [("status", "no candidate was judged")]
        if self.kept:
            rows.append(("kept", f"all candidates in {self.kept}"))
        if self.message:
            rows.append(("note", self.message))
        return [*rows, ("took", f"{self.seconds:.1f} s")]

    def _wrong_ones(self) -> verdict_view.Rows:
        """Each candidate with what was said of it; equal texts, which a small model often writes, once."""
        same: dict[str, list[int]] = {}
        for number, attempt in enumerate(self.attempts):
            same.setdefault(attempt.candidate.digest or str(number), []).append(number)
        verdicts = [self.attempts[numbers[0]].verdict for numbers in same.values()]
        named = [f"candidate{'s' * (len(n) > 1)} {', '.join(str(i + 1) for i in n)}" for n in same.values()]
        return [(name, f"{verdict.status}: {verdict.message}") for name, verdict in zip(named, verdicts, strict=True)]

    def report(self) -> str:
        """What the command line prints of it."""
        return verdict_view.as_text(self.title, self.rows(), self.verdict)

    def __repr__(self) -> str:
        return self.report()

    def _repr_html_(self) -> str:
        return verdict_view.as_html(self.title, self.rows(), self.verdict)


class LiveResult(Result, frozen=True, kw_only=True):
    """What was found for a live module."""

    module: Any
    """The module with kernels in its forward. Where no kernel was correct it runs the original's forward."""
    others: tuple[Result, ...] = ()
    """Results for further sets of example inputs that the first file does not serve."""
