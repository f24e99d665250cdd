"""Seeds of trials: the same for the same problem and candidate, and not foreseen by the candidate, whose own source is hashed."""

from __future__ import annotations

import hashlib

from kernelllm.core.types import Candidate, Problem

INIT_SEED = 42
"""Both models are built under it, as in KernelBench."""


class TrialSeeds:
    """The seeds for one problem and candidate."""

    def __init__(self, problem: Problem, candidate: Candidate) -> None:
        self._prefix = (problem.digest, candidate.digest)

    def derive(self, *parts: object) -> int:
        """The seed for what ``parts`` name."""
        text = "/".join([*self._prefix, *map(str, parts)])
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1

    def first(self, position: int) -> int:
        """The seed of the first trial at the size of this position."""
        return self.derive(position, "problem", 0)
