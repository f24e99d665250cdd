"""Two ways to run a graph take turns on a GPU until it is known which is faster, backward included."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

Run = Callable[..., Any]
TIMED = 10
"""Calls of each way that count, after one that may compile."""
MARGIN = 0.98
"""Ours stays where it takes less than this share of Inductor's time: nobody gains by a tie, and both times are noisy."""
LONGEST = 60
"""Calls after which it is decided by all of them, where sizes do not come back."""


def on_gpu(inputs: tuple[Any, ...]) -> bool:
    """Whether the graph runs on a GPU, whose clock can be read."""
    return any(isinstance(value, torch.Tensor) and value.is_cuda for value in inputs)


def stamp() -> Any:
    """A moment on the GPU's clock."""
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


@dataclass
class _Timed:
    """One call: a forward, and its backward where there was one."""

    ours: bool
    sizes: tuple[int, ...]
    begin: Any
    end: Any = None
    backward_begin: Any = None
    backward_end: Any = None

    def milliseconds(self) -> float:
        """Of both."""
        forward = self.begin.elapsed_time(self.end)
        return float(forward + (self.backward_begin.elapsed_time(self.backward_end) if self.backward_end else 0.0))


class Race:
    """Called as either way. ``decided`` is told once whether ours may stay, and why not. Calls of equal sizes are compared."""

    def __init__(self, ours: Run, theirs: Run, decided: Callable[[bool, str], Run]) -> None:
        """``decided`` gives the one that stays."""
        self._ways, self._decided = {True: ours, False: theirs}, decided
        self._calls: list[_Timed] = []
        self._warm: set[bool] = set()

    def __call__(self, *inputs: Any) -> Any:
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            return self._ways[False](*inputs)  # the graph that is being captured will never switch
        sizes = tuple(value for value in inputs if isinstance(value, int))
        pairs = sum(min(self._count(True, s), self._count(False, s)) for s in {c.sizes for c in self._calls})
        if pairs >= TIMED or len(self._calls) >= LONGEST:
            return self._decide()(*inputs)
        here, all_of = ([self._count(ours, key) for ours in (True, False)] for key in (sizes, None))
        ours = here[0] < here[1] or (here[0] == here[1] and all_of[0] <= all_of[1])
        call = _Timed(ours, sizes, stamp())
        result = self._ways[ours](*inputs)
        call.end = stamp()
        if node := _backward(result):
            node.register_prehook(lambda gradients: setattr(call, "backward_begin", stamp()))
            node.register_hook(lambda given, made: setattr(call, "backward_end", stamp()))
        if ours in self._warm:
            self._calls.append(call)
        self._warm.add(ours)
        return result

    def _count(self, ours: bool, sizes: tuple[int, ...] | None) -> int:
        return sum(c.ours is ours and sizes in (None, c.sizes) for c in self._calls)

    def _decide(self) -> Run:
        for last in (self._calls[-1].end, self._calls[-1].backward_end):
            if last is not None:
                last.synchronize()
        took = {ours: self._took(ours) for ours in (True, False)}
        common = set(took[True]) & set(took[False])
        ours, theirs = (median(t for s, ts in took[w].items() if s in common or not common for t in ts) for w in (True, False))
        self._calls.clear()
        return self._decided(ours <= MARGIN * theirs, f"written kernels take {ours:.3f} ms a call, Inductor's {theirs:.3f} ms")

    def _took(self, ours: bool) -> dict[tuple[int, ...], list[float]]:
        found: dict[tuple[int, ...], list[float]] = {}
        for call in self._calls:
            if call.ours is ours:
                found.setdefault(call.sizes, []).append(call.milliseconds())
        return found


def _backward(result: Any) -> Any:
    """What autograd runs for the whole graph; None without gradients."""
    for value in result if isinstance(result, list | tuple) else ():
        node = value.grad_fn if isinstance(value, torch.Tensor) else None
        for found in (node, *(n for n, _ in (node.next_functions if node else ()))):
            if "CompiledFunction" in type(found).__name__:
                return found
    return None
