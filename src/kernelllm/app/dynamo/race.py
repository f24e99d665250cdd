"""Two ways to run a graph take turns on a GPU until it is known which is faster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch

Run = Callable[[list[Any]], Sequence[Any]]
TIMED = 6
"""Calls of each way that count, after one that may compile."""
NOISE = 1.02
"""So much slower counts as equal."""


def on_gpu(inputs: Sequence[Any]) -> bool:
    """Whether the graph runs on a GPU, whose clock can be read."""
    return any(isinstance(value, torch.Tensor) and value.is_cuda for value in inputs)


def stamp() -> Any:
    """A moment on the GPU's clock."""
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


class Race:
    """Called as either way. ``decided`` is told once whether the first may stay, and why not."""

    def __init__(self, ours: Run, theirs: Run, decided: Callable[[bool, str], None]) -> None:
        self._ways, self._decided = (ours, theirs), decided
        self._calls = 0
        self._timed: tuple[list[Any], list[Any]] = ([], [])

    def __call__(self, inputs: list[Any]) -> Sequence[Any]:
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            return self._ways[0](inputs)  # the graph that is being captured will never switch
        turn = self._calls % 2
        self._calls += 1
        begin = stamp()
        result = self._ways[turn](inputs)
        if self._calls > 2:
            self._timed[turn].append((begin, stamp()))
        if len(self._timed[1]) == TIMED:
            self._decide()
        return result

    def _decide(self) -> None:
        self._timed[1][-1][1].synchronize()
        ours, theirs = (median(begin.elapsed_time(end) for begin, end in list(pairs)) for pairs in self._timed)
        self._timed[1].clear()
        self._decided(ours <= theirs * NOISE, f"written kernels take {ours:.3f} ms a call, Inductor's {theirs:.3f} ms")
