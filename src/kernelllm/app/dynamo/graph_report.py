"""What became of each graph that ``torch.compile(backend="kernelllm")`` was given."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

from kernelllm.app.dynamo import compile_jobs

log = logging.getLogger("kernelllm")
State = Literal["waiting", "written", "checked", "inductor", "eager"]
WORDS: dict[State, str] = {
    "waiting": "not written yet",
    "written": "run by written kernels",
    "checked": "written and verified, not run as there is no GPU",
    "inductor": "left to Inductor",
    "eager": "left to eager",
}
_RECORDED = "as a CUDA graph"


@dataclass
class GraphRecord:
    name: str
    """``forward 0``, ``backward 0``, ``inference 1``: the part, and a number for each call of the backend."""
    operators: int
    state: State = "waiting"
    cause: str = ""
    """Why it is left to Inductor or to eager, or what the ways took where they were timed."""
    verified: bool = False
    from_disk: bool = False
    recorded: bool = False
    """Whether it was recorded as a part of a CUDA graph."""
    seconds: float = 0.0
    """Time that the first call waited for the file."""
    write_s: float = 0.0
    judge_s: float = 0.0
    file: str = ""
    """The written file."""
    settle: Callable[[], Callable[[], bool] | None] = field(default=lambda: None, repr=False)
    """Refers to what takes the file as soon as there is one."""

    def became(self, state: State, cause: str = "") -> None:
        """Note what runs it from now on, and log it once."""
        if (state, cause) == (self.state, self.cause):
            return
        self.state, self.cause = state, cause
        level = logging.INFO if state in ("written", "checked", "waiting") else logging.WARNING
        log.log(level, "%s", self)

    def __str__(self) -> str:
        runs = self.state == "written"
        told = (("verified", self.verified and runs), (_RECORDED, self.recorded and runs), ("from the disk", self.from_disk))
        how = [words for words, holds in told if holds]
        if self.write_s and not self.from_disk:
            how.append(f"{self.write_s:g} s to write, {self.judge_s:g} s to judge")
        text = f"{self.name} ({self.operators} operators): {WORDS[self.state]}" + (f" ({', '.join(how)})" if how else "")
        return f"{text}: {self.cause}" if self.cause else text


@dataclass
class CompileReport:
    """All graphs of this process, in the order in which they came. Print it."""

    graphs: list[GraphRecord] = field(default_factory=list)

    def count(self, state: State) -> int:
        """How many graphs are in that state."""
        return sum(g.state == state for g in self.graphs)

    def finish(self, timeout_s: float | None = None) -> bool:
        """Wait until no graph is being written any more; whether that is so."""
        finished = compile_jobs.finish(timeout_s)
        for settle in [g.settle() for g in self.graphs]:
            if settle is not None:
                settle()
        return finished

    def clear(self) -> None:
        """Forget what was until now."""
        self.graphs.clear()

    def __str__(self) -> str:
        counts = [f"{self.count(state)} {words}" for state, words in WORDS.items() if self.count(state)]
        alike = [list(some) for _, some in groupby(self.graphs, key=lambda g: (g.name.partition(".")[0], g.state, g.cause))]
        return "\n".join([f"{len(self.graphs)} graphs: {', '.join(counts) or 'none'}", *(f"  {_line(some)}" for some in alike)])


def _line(graphs: list[GraphRecord]) -> str:
    """Pieces of one graph that fared alike share a line."""
    first, last = graphs[0], graphs[-1]
    if first is last:
        return str(first)
    made = {(g.write_s, g.judge_s) for g in graphs if g.write_s and not g.from_disk}  # equal pieces are written once
    seconds = [f"{len(made)} of them written in {sum(w for w, _ in made):g} s, judged in {sum(j for _, j in made):g} s"] if made else []
    recorded = [_RECORDED] if all(g.recorded and g.state == "written" for g in graphs) else []
    how = [*(["verified"] if first.state == "written" and all(g.verified for g in graphs) else []), *recorded, *seconds]
    text = f"{first.name} to {last.name} ({sum(g.operators for g in graphs)} operators): {WORDS[first.state]}"
    return text + (f" ({', '.join(how)})" if how else "") + (f": {first.cause}" if first.cause else "")


_report = CompileReport()


def compile_report() -> CompileReport:
    """What became of the graphs of ``torch.compile(backend="kernelllm")`` in this process."""
    return _report
