"""Which of three ways runs a graph of Dynamo's: written files (through AOTAutograd), Inductor as in plain ``torch.compile``, or eager.

All three are made while Dynamo compiles, since its fake tensors and guards exist only then. Where Inductor wins, one call of ours
remains between Dynamo and Inductor's callable.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import torch

from kernelllm.app.dynamo.graph_report import GraphRecord
from kernelllm.app.dynamo.timed_selection import RECORDED, TimedSelection, Way, on_gpu

if TYPE_CHECKING:
    from kernelllm.app.dynamo.backend_options import CompileOptions
    from kernelllm.app.dynamo.graph_cache import Decision

log = logging.getLogger("kernelllm")
Run = Callable[..., Any]


class AotPart(Protocol):
    """A graph of AOTAutograd's, or a subgraph of one."""

    record: GraphRecord

    @property
    def kept(self) -> bool: ...

    @property
    def begun(self) -> bool: ...

    def settle(self, *, wait: bool = True) -> bool: ...


class GraphChoice:
    """Runs a graph. The first call runs ours, since its values show what to write. Inductor runs until all is written; then the fastest."""

    def __init__(self, key: str, known: Decision | None, options: CompileOptions) -> None:
        """``known``: what was decided in an earlier process."""
        self.options, self.parts = options, list[AotPart]()
        self.has_inductor = options.fallback == "inductor"
        self.written = list[int]()
        """Positions of the inputs that the graph writes into."""
        self._key, self._known = key, known
        self._ours: Run | None = None
        self._theirs: Run | None = None
        self._eager: Run | None = None
        self._selection: TimedSelection | None = None
        self._cause, self._keeps = "", True
        self._lock = threading.Lock()
        self.run: Run

    def between(self, ours: Run, theirs: Run | None, eager: Run) -> Run:
        """What to call. Without ``theirs`` it is ours, which is eager where nothing is written."""
        self._ours, self._theirs, self._eager = ours, theirs, eager
        self.has_inductor = theirs is not None
        if theirs is None:
            self._left_to_eager()
            return ours
        self.run = self._first

        def run(*inputs: Any) -> Any:
            return self.run(*inputs)

        return run

    def begins(self) -> None:
        """A part is called for the first time: it is chosen anew as soon as that is written."""
        if self._theirs is not None and self._ours is not None:
            self.run = self._until_written

    def failed(self, cause: str) -> None:
        """A written file failed."""
        if self._theirs is not None and self._ours is not None:
            self._stays("inductor", cause, keep=True)

    def _first(self, *inputs: Any) -> Any:
        ours, theirs = self._ours, self._theirs
        assert ours is not None
        assert theirs is not None
        self.run = self._until_written
        try:
            return ours(*inputs)
        except Exception as error:  # noqa: BLE001 - eager's memory, for instance; what is the caller's fault is raised once more
            self._stays("inductor", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
        return theirs(*inputs)

    def _until_written(self, *inputs: Any) -> Any:
        begun = [part for part in self.parts if part.begun]
        if begun and sum(part.settle(wait=False) for part in begun) == len(begun):
            with self._lock:
                if self.run == self._until_written:
                    self._choose(begun, inputs)
            return self.run(*inputs)
        assert self._theirs is not None
        return self._theirs(*inputs)

    def _choose(self, begun: list[AotPart], inputs: tuple[Any, ...]) -> None:
        assert self._ours is not None
        assert self._theirs is not None
        assert self._eager is not None
        records = [part.record for part in begun]
        written = sum(r.operators for r in records if r.state == "written")
        ways: dict[Way, Run] = {"written": self._ours, "inductor": self._theirs, "eager": self._eager}
        if 2 * written <= sum(r.operators for r in records):
            del ways["written"]
            self._cause = next((r.cause for r in records if r.state == "inductor"), "")
            self._keeps = all(part.kept for part in begun) and all(r.state == "inductor" for r in records)
        if not on_gpu(inputs):
            self._stays("written" if "written" in ways else "inductor", self._cause, keep=self._keeps and "written" not in ways)
        elif self._known and self._known.way in ways:
            self._stays(self._known.way, self._known.cause)
        else:
            self._selection = TimedSelection(ways, self._selected, warm=RECORDED if self.options.cuda_graphs else 1)
            self.run = self._selection

    def _selected(self, way: Way, cause: str) -> Run:
        assert self._selection is not None
        # eager needs more memory for a backward: whether it fits is asked in each process
        keep = self._keeps and not (way == "eager" and self._selection.gradients)
        return self._stays(way, cause if way == "written" or not self._cause else f"{self._cause}; {cause}", keep=keep)

    def _stays(self, way: Way, cause: str, *, keep: bool = False) -> Run:
        """Let ``way`` run the graph from now on; ``keep`` the choice for later processes."""
        if keep and self.options.cache:
            from kernelllm.app.dynamo import graph_cache

            graph_cache.put(self._key, graph_cache.Decision(way=way, cause=cause, written=self.written))
        self._selection = None
        if way == "written":
            assert self._ours is not None
            self._left_to_eager()
            for part in self.parts:
                if part.record.state == "written":
                    part.record.became("written", cause)
            self.run = self._ours
            return self.run
        chosen = self._theirs if way == "inductor" else self._eager
        self.run = torch._dynamo.eval_frame.innermost_fn(chosen)  # Dynamo disables itself around what it was given
        for part in self.parts:
            if part.record.state != "checked":
                part.record.became(way, part.record.cause or cause)
        self._ours = None
        self.parts.clear()
        return self.run

    def _left_to_eager(self) -> None:
        """Ours it is: what it has no file for stays with eager."""
        for part in self.parts:
            if part.record.state == "inductor":
                part.record.became("eager", part.record.cause)
