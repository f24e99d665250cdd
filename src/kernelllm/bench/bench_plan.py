"""The plan of a benchmark run: which problems, which model, how many samples, which judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kernelllm.core.errors import UsageError
from kernelllm.core.types import Problem, digest


class BenchPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One model on one list of problems. Everything in it is plain data: it crosses to other processes."""

    suite: str
    """The suite as it was asked for, e.g. ``kernelbench:level1``."""
    version: str = ""
    problems: tuple[Problem, ...]
    model: str
    n: int = 1
    """Samples of a problem: each is a conversation of its own where there are several rounds."""
    rounds: int = 1
    """Most versions of a sample; after a version the model is told its verdict and asked for the next."""
    writer: dict[str, Any] = {}
    """Options of ``kernelllm.core.writer.open_writer``: sampling parameters, templates, compiler options."""
    judge: dict[str, Any] = {}
    """Fields of ``kernelllm.judge.JudgeSettings``."""
    judge_class: str = "kernelllm.judge:Judge"
    """``module:attribute`` of what judges; called with the settings."""
    writer_factory: str = "kernelllm.core.writer:open_writer"
    """``module:attribute`` of what makes the writer; called with the model's name and the options."""

    def identity(self) -> dict[str, Any]:
        """What makes two commands the same run. ``n`` and ``rounds`` are no part of it: asking for more continues."""
        return {
            "suite": self.suite,
            "problems": digest("\n".join(f"{p.name} {p.digest}" for p in self.problems)),
            "model": self.model,
            "writer": self.writer,
            "judge": {k: v for k, v in self.judge.items() if k not in ("cache", "keep_verdicts")},
            "judge_class": self.judge_class,
        }

    @property
    def samples(self) -> int:
        return self.n * len(self.problems)


def shard(problems: Sequence[Problem], text: str) -> tuple[Problem, ...]:
    """Every n-th problem from the i-th on, for ``text`` = ``i/n`` with i from 0. Raises UsageError otherwise."""
    index, _, count = text.partition("/")
    if not (index.isdigit() and count.isdigit() and int(index) < int(count)):
        raise UsageError(f"--shard takes I/N with 0 <= I < N, not {text!r}.")
    return tuple(problems[int(index) :: int(count)])
