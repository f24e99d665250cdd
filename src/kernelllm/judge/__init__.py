"""Decides whether a candidate is right, honest and how fast, without ever sharing a process with one.

``Judge`` keeps warm worker servers and judges many candidates; ``judge`` judges one. The package itself can be
called, as ``kernelllm.judge(problem, candidate)``. Start with ``judging.py`` and ``evaluation.py``, one candidate's way to its verdict.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os

    from kernelllm.core.types import Candidate, Problem, Verdict
    from kernelllm.judge.judging import Judge, JudgeSettings, judge

__all__ = ["Judge", "JudgeSettings", "judge"]


def __getattr__(name: str) -> Any:
    """Import on first use: workers and ``--help`` must not load the trusted side."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("kernelllm.judge.judge_settings" if name == "JudgeSettings" else "kernelllm.judge.judging"), name)


class _Room(ModuleType):
    """This module, callable: ``kernelllm.judge`` is the package's name and the public function's."""

    def __call__(
        self,
        problem: Problem | str | os.PathLike[str],
        candidate: Candidate | str | os.PathLike[str],
        settings: JudgeSettings | None = None,
        **fields: Any,
    ) -> Verdict:
        """Judge one candidate. ``problem``: a Problem or a path; ``candidate``: a Candidate, its source, or a path;
        ``fields`` make the settings where none are given. Raises UsageError, ProblemError."""
        from pathlib import Path

        from kernelllm.core.types import Candidate, Problem
        from kernelllm.judge import judging
        from kernelllm.suites import file

        opened = problem if isinstance(problem, Problem) else file.open_problem(str(problem))
        if not isinstance(candidate, Candidate):
            text = str(candidate)
            candidate = Candidate(source=text if "\n" in text else file.read(Path(text)))
        return judging.judge(opened, candidate, settings or judging.JudgeSettings(**fields))


sys.modules[__name__].__class__ = _Room
