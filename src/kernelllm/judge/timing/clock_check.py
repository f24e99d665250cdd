"""Does the worker report true times? They are compared with the judge's own clock over the same batch."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from kernelllm.core.types import Finding
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.timing import rounds
from kernelllm.judge.transport import values

_BATCH_MS = 30.0
_TRIES = 4
_COPY_RATE = 0.25e12
"""Bytes/s, cautious: an output is copied by the worker, then by the judge."""
_GRAPH_SHARE = 0.75
"""A claimed time below this share of the candidate's own time in a graph is not believed."""


class TimedInBatches(Protocol):
    """The candidate in its worker. ``kept``: input set to the latest output of a timed run that was fetched."""

    input_sets: int
    kept: dict[int, Any]

    def batch(self, order: Sequence[int], *, flush: bool, graph: bool = False, keep: tuple[int, ...] = ()) -> tuple[Any, Mapping[int, Any]]:
        """Run on each input set of ``order``: a reply with ``times_ms``, and the outputs of the positions in ``keep``."""
        ...


def findings(candidate: TimedInBatches, median_ms: float, launches: int, rng: random.Random) -> list[Finding]:
    """A finding where far more time passes in this process than the worker reports.

    ``median_ms``: what the worker claims for a run; ``launches``: kernels of a run. A hiccup of the machine passes with another
    attempt. A host too slow to keep the GPU busy passes with CUDA graphs: two batches are replayed, and their difference is free
    of what capturing costs.
    """
    runs = int(min(200, max(5, _BATCH_MS / max(median_ms, 1e-3))))
    order = [rng.randrange(candidate.input_sets) for _ in range(runs)]
    candidate.batch(order[:2], flush=False, keep=(1,))  # the output arena grows here, not below
    for attempt in range(_TRIES):
        check = _compared(candidate, order, launches)
        if check.honest():
            return []
        time.sleep(0.05 * attempt)
    with contextlib.suppress(CandidateFailure):  # not everything can be captured
        if _honest_in_graphs(candidate, order, median_ms):
            return []
    message = f"The worker reported {check.reported_ms:.2f} ms for a batch that took {check.seen_ms:.2f} ms by the judge's clock."
    return [Finding(check="clock", message=message)]


def _compared(candidate: TimedInBatches, order: Sequence[int], launches: int, *, graph: bool = False) -> rounds.ClockCheck:
    start = time.perf_counter()
    # The last run's output is fetched: it is complete only when all work before it is.
    timed, kept = candidate.batch(order, flush=False, graph=graph, keep=(len(order) - 1,))
    seen = 1000 * (time.perf_counter() - start)
    candidate.kept.update({order[p]: v for p, v in kept.items()})
    copied = sum(t.numel() * t.element_size() for t in values.flatten(list(kept.values())))
    seen -= 1e3 * copied / _COPY_RATE
    return rounds.ClockCheck(reported_ms=sum(timed.times_ms), seen_ms=seen, runs=len(order), launches=launches)


def _honest_in_graphs(candidate: TimedInBatches, order: Sequence[int], median_ms: float) -> bool:
    few, many = _compared(candidate, order, 1, graph=True), _compared(candidate, list(order) * 4, 1, graph=True)
    runs = many.runs - few.runs
    reported, seen = many.reported_ms - few.reported_ms, many.seen_ms - few.seen_ms
    believed = rounds.ClockCheck(reported_ms=reported, seen_ms=seen, runs=runs, launches=1).honest()
    return believed and median_ms >= _GRAPH_SHARE * reported / runs
