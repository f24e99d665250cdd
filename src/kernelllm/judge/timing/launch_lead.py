"""Keeps the GPU busy before a batch of timed runs until the host has launched each run before the GPU comes to it.

Events measure the GPU's time of a run only while launches wait for the GPU. Where preparing a run takes longer than the flush before it
and the run itself, the GPU catches up after some runs, and from then on the host's time is measured. Which runs these are is known
afterwards (:class:`EnqueuedBatch`): they are left out, and the next batch gets a longer lead or fewer runs.

In the profile ``kernelbench``, where each run waits for the one before, launching is meant to count, but not what else the host does:
runs in which it took longer than it can are left out there.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

MIN_LEAD_FLUSHES = 8
"""L2 flushes before the first timed run of any batch."""
TRIES = 4
"""Batches without a single run ahead, each with a longer lead, after which a contestant is timed with its launching."""
_LONGEST_MS = 25.0
"""No longer lead before a batch: it gets fewer runs instead."""
_SURE_MS = 60.0
"""The longest lead of one run alone."""
_MARGIN = 1.5
_RECENT = 5
_HELD_UP = 1.25
"""A host that takes this many times as long as in its faster quarter was held up by something else."""
_LAUNCHINGS = 400


@dataclass(frozen=True)
class EnqueuedBatch:
    """What two clocks with one origin tell of a batch. In milliseconds.

    ``enqueued_ms``: when the host began with the first run, then when it had enqueued each; ``reached_ms``: when the GPU came to each;
    ``launching_ms``: how long each run's call kept the host.
    """

    times_ms: Sequence[float]
    enqueued_ms: Sequence[float] = ()
    reached_ms: Sequence[float] = ()
    launching_ms: Sequence[float] = ()

    def ahead(self) -> list[float]:
        """Times of the runs that were enqueued before the GPU came to them."""
        return [t for t, done, come in zip(self.times_ms, self.enqueued_ms[1:], self.reached_ms, strict=False) if done <= come]

    def host_ms(self) -> float | None:
        """What the host needs for a run and its flush; None where that is not known."""
        steps = [after - before for before, after in pairwise(self.enqueued_ms)]
        usual = statistics.median(steps) if steps else math.nan
        return usual if 0 <= usual < math.inf else None


@dataclass(frozen=True)
class Lead:
    """Before a batch of ``runs`` runs the GPU is kept busy for ``busy_ms``, beside the least number of flushes."""

    runs: int
    busy_ms: float = 0.0


@dataclass
class _Known:
    host: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    gpu: float = 0.0
    launching: deque[float] = field(default_factory=lambda: deque(maxlen=_LAUNCHINGS))
    failed: int = 0
    """Batches in a row without a run ahead."""
    held_up: bool = False


class LaunchLead:
    """The lead of the host over the GPU, for each contestant as it needs: launching then counts for none of them.

    ``flush_ms``: what one flush takes on the GPU.
    """

    def __init__(self, flush_ms: float) -> None:
        self._flush_ms = max(flush_ms, 1e-3)
        self._known: dict[str, _Known] = {}

    def before(self, name: str, runs: int) -> Lead:
        """For the next batch of a contestant that should have so many runs."""
        known = self._known.get(name)
        if known is None or not known.host or known.held_up:
            return Lead(runs)
        host, step = statistics.median(known.host), known.gpu + self._flush_ms
        margin = _MARGIN * 2**known.failed
        if known.failed + 1 >= TRIES:
            runs = 1
        elif host > step:
            runs = max(1, min(runs, int(_LONGEST_MS / (margin * (host - step)))))
        # by then the first run is enqueued, and when the GPU comes to the last one, that one
        needed = margin * max(host - self._flush_ms, runs * host - (runs - 1) * step - self._flush_ms)
        return Lead(runs, min(max(needed - MIN_LEAD_FLUSHES * self._flush_ms, 0.0), _SURE_MS))

    def learn(self, name: str, batch: EnqueuedBatch) -> list[float]:
        """The times of a batch that count: those of the runs that were ahead, or of all once launching cannot be hidden."""
        known = self._known.setdefault(name, _Known())
        ahead, host = batch.ahead(), batch.host_ms()
        if host is not None and batch.times_ms:
            known.host.append(host)
            known.gpu = min(ahead or batch.times_ms)
        known.failed = 0 if ahead else known.failed + 1
        known.held_up = known.held_up or known.failed >= TRIES
        return list(batch.times_ms) if known.held_up else ahead

    def undisturbed(self, name: str, batch: EnqueuedBatch) -> list[float]:
        """The times of a batch of runs that wait for each other, without those in which something held the host up."""
        known = self._known.setdefault(name, _Known()).launching
        known.extend(batch.launching_ms)
        usual = sorted(known)[len(known) // 4] if known else math.inf
        return [t for t, launching in zip(batch.times_ms, batch.launching_ms, strict=False) if launching <= _HELD_UP * usual]

    def held_up(self, name: str) -> bool:
        """Whether launching is a part of this contestant's times: it waits for the GPU in every run, or launches too many kernels."""
        return name in self._known and self._known[name].held_up
