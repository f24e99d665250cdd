"""How long the GPU is kept busy before a batch of timed runs, so that the host has launched each run before the GPU comes to it.

Events measure the GPU's time of a run only while launches wait for the GPU. Where preparing a run takes longer than the flush before it
and the run itself, the GPU catches up after some runs, and from then on the host's time is measured.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Sequence

MIN_LEAD_FLUSHES = 8
"""L2 flushes before the first timed run of any batch."""
_MOST = 2.0
"""No more flushes a run than that: the time of a contestant that needs more shows that launching holds it up."""
_MARGIN = 1.3
_RECENT = 5


class LaunchLead:
    """The lead of the host, the same for all contestants of a measurement: otherwise launching would count for one and not for another.

    ``flush_ms``: what one flush takes on the GPU.
    """

    def __init__(self, flush_ms: float) -> None:
        self._flush_ms = max(flush_ms, 1e-3)
        self._behind: dict[str, deque[float]] = {}

    def flushes(self, runs: int) -> int:
        """How many to enqueue before a batch of so many runs."""
        behind = max((statistics.median(seen) for seen in self._behind.values()), default=0.0)
        share = _MARGIN * behind / self._flush_ms
        return MIN_LEAD_FLUSHES + (math.ceil(share * runs) if share <= _MOST else 0)

    def learn(self, name: str, times_ms: Sequence[float], enqueue_ms: float) -> None:
        """A batch of the contestant ``name``: its times, and what the host needed to enqueue its runs and their flushes."""
        if not times_ms or not 0 <= enqueue_ms < math.inf:
            return
        # The first runs wait for the leading flushes, so that the least of all is the GPU's own time.
        behind = enqueue_ms / len(times_ms) - self._flush_ms - min(times_ms)
        self._behind.setdefault(name, deque(maxlen=_RECENT)).append(max(behind, 0.0))
