"""How far a benchmark is, in one line: counts, rate, time left, money, and how busy the GPUs are."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence

from kernelllm.core.types import Attempt

LOOK_S = 10.0
"""Seconds between two looks at the GPUs."""
FIRST_S = 5.0
"""Seconds until the first line of plain output, and the least between two."""


class Meter:
    """Counts attempts as they come; ``stored`` are those that an earlier command made."""

    def __init__(self, model: str, wanted: int, stored: Sequence[Attempt] = ()) -> None:
        self.model, self.wanted = model, wanted
        self.done, self.correct = len(stored), sum(a.verdict.correct for a in stored)
        self.usd: float | None = None
        self._before, self._start = self.done, time.monotonic()
        self._looked, self._busy = 0.0, ""
        self._line = self._start
        for attempt in stored:
            self._pay(attempt)

    def add(self, attempt: Attempt) -> None:
        """One more attempt is stored."""
        self.done, self.correct = self.done + 1, self.correct + attempt.verdict.correct
        self._pay(attempt)
        if attempt.verdict.on_gpu:
            self._look()

    @property
    def new(self) -> bool:
        """Whether any attempt came since it was made."""
        return self.done > self._before

    def due(self) -> bool:
        """Whether plain output gets another line: soon after the start and less and less often, at least every minute."""
        now = time.monotonic()
        if now - self._line < min(max(FIRST_S, 0.1 * (now - self._start)), 60.0):
            return False
        self._line = now
        return True

    def text(self) -> str:
        """``MODEL: 50 of 200, 31 correct, 12 a minute, 13 min left, $0.42, GPUs 87 %``."""
        rate = (self.done - self._before) / max(time.monotonic() - self._start, 1e-9)
        left = (self.wanted - self.done) / max(rate, 1e-9)
        parts = [f"{self.done} of {self.wanted}", f"{self.correct} correct", f"{60 * rate:.0f} a minute", f"{duration(left)} left"]
        if self.usd is not None:
            parts.append(f"${self.usd:.2f}")
        if self._busy:
            parts.append(self._busy)
        return f"{self.model}: {', '.join(parts)}"

    def _pay(self, attempt: Attempt) -> None:
        if attempt.cost.usd is not None:
            self.usd = (self.usd or 0.0) + attempt.cost.usd

    def _look(self) -> None:
        """Mean utilisation of all GPUs, as the driver's own tool says; empty where it cannot be had."""
        now = time.monotonic()
        if now - self._looked < LOOK_S and self._looked:
            return
        self._looked = now
        command = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
        try:
            told = subprocess.run(command, capture_output=True, text=True, timeout=2, check=False).stdout.split()
        except (OSError, subprocess.TimeoutExpired):
            return
        known = [int(text) for text in told if text.isdigit()]
        self._busy = f"GPUs {sum(known) / len(known):.0f} %" if known else ""


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, whichever reads well."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
