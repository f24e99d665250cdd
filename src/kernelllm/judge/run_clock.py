"""Times one batch of runs, for judge and workers: L2 cleared before each run, device events around it, the host's clock beside them.

Events measure the GPU's time of a run only where the whole run was enqueued before the GPU came to it. Both clocks start at one point,
so each run tells whether that was so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any

import torch

FLUSH_BYTES = 256 * 2**20
"""Least size of the buffer that clears the L2 cache: KernelBench's."""

# taken before any candidate code runs, so that replacing them in torch changes nothing here
_Event, _synchronize, _perf_counter = torch.cuda.Event, torch.cuda.synchronize, time.perf_counter
_sleep: Callable[[int], None] = torch.cuda._sleep
_current_stream, _wait_stream = torch.cuda.current_stream, torch.cuda.Stream.wait_stream


class RunClock:
    """Clocks of a batch of so many runs, on the stream that is current now. ``flush``: what is written to clear the L2 cache;
    ``side_streams``: others, whose work is a part of the run in which it was enqueued."""

    def __init__(self, runs: int, flush: torch.Tensor | None, side_streams: Collection[Any] = ()) -> None:
        self._flush, self._side_streams, self._stream = flush, side_streams, _current_stream()
        self._origin = _event()
        self._starts, self._ends = [_event() for _ in range(runs)], [_event() for _ in range(runs)]
        self._begun = 0.0
        self._enqueued: list[float] = []
        self._launching: list[float] = []

    def begin(self, *, flushes: int, busy_cycles: int, settle: bool) -> None:
        """Keep the GPU busy while the first runs are enqueued: for so many cycles, then with flushes."""
        if busy_cycles:
            _sleep(1)  # loaded now, not in between
        _synchronize()
        self._begun = _perf_counter()  # first: the GPU's clock then seems to be ahead, never behind
        self._origin.record(self._stream)
        if busy_cycles:
            _sleep(busy_cycles)
        for _ in range(flushes):
            self.flush()
        if settle:
            _synchronize()
        self._note()

    def flush(self) -> None:
        """Clear the L2 cache."""
        if self._flush is not None:
            self._flush.zero_()

    def start(self, position: int) -> None:
        self._starts[position].record(self._stream)
        self._launching.append(_perf_counter())

    def end(self, position: int) -> None:
        self._launching[-1] = 1e3 * (_perf_counter() - self._launching[-1])
        for stream in self._side_streams:
            _wait_stream(self._stream, stream)
        self._ends[position].record(self._stream)
        self._note()

    def _note(self) -> None:
        self._enqueued.append(1e3 * (_perf_counter() - self._begun))

    def enqueued_ms(self) -> tuple[float, ...]:
        """By the host's clock: when the first run began to be enqueued, then when each was."""
        return tuple(self._enqueued)

    def launching_ms(self) -> tuple[float, ...]:
        """How long each run's call kept the host."""
        return tuple(self._launching)

    def times_ms(self) -> tuple[float, ...]:
        """What each run took. Waits for none of them: the caller has synchronized."""
        return tuple(s.elapsed_time(e) for s, e in zip(self._starts, self._ends, strict=True))

    def reached_ms(self) -> tuple[float, ...]:
        """When the GPU came to each run."""
        return tuple(self._origin.elapsed_time(s) for s in self._starts)


def _event() -> Any:
    return _Event(enable_timing=True)  # type: ignore[no-untyped-call]
