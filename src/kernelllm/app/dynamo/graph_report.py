"""What became of each graph that ``torch.compile(backend="kernelllm")`` was given."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Literal

log = logging.getLogger("kernelllm")
State = Literal["waiting", "written", "checked", "inductor", "eager"]
WORDS: dict[State, str] = {
    "waiting": "not written yet",
    "written": "run by written kernels",
    "checked": "written and verified, run by eager as there is no GPU",
    "inductor": "left to Inductor",
    "eager": "left to eager",
}


@dataclass
class GraphRecord:
    name: str
    """``forward 0``, ``backward 0``, ``inference 1``: the part, and a number for each call of the backend."""
    operators: int
    state: State = "waiting"
    cause: str = ""
    """Why it is left to Inductor or to eager."""
    verified: bool = False
    from_disk: bool = False
    seconds: float = 0.0
    """Time that writing and judging took, or reading them from the disk."""
    file: str = ""
    """The written file."""

    def became(self, state: State, cause: str = "") -> None:
        """Note what runs it from now on, and log it once."""
        if (state, cause) == (self.state, self.cause):
            return
        self.state, self.cause = state, cause
        level = logging.INFO if state in ("written", "checked", "waiting") else logging.WARNING
        log.log(level, "%s", self)

    def __str__(self) -> str:
        how = [w for w, holds in (("verified", self.verified and self.state == "written"), ("from the disk", self.from_disk)) if holds]
        text = f"{self.name} ({self.operators} operators): {WORDS[self.state]}" + (f" ({', '.join(how)})" if how else "")
        return f"{text}: {self.cause}" if self.cause else text


@dataclass
class CompileReport:
    """All graphs of this process, in the order in which they came. Print it."""

    graphs: list[GraphRecord] = field(default_factory=list)

    def count(self, state: State) -> int:
        """How many graphs are in that state."""
        return sum(g.state == state for g in self.graphs)

    def clear(self) -> None:
        """Forget what was until now."""
        self.graphs.clear()

    def __str__(self) -> str:
        counts = [f"{self.count(state)} {words}" for state, words in WORDS.items() if self.count(state)]
        return "\n".join([f"{len(self.graphs)} graphs: {', '.join(counts) or 'none'}", *(f"  {g}" for g in self.graphs)])


_report = CompileReport()


def compile_report() -> CompileReport:
    """What became of the graphs of ``torch.compile(backend="kernelllm")`` in this process."""
    return _report
