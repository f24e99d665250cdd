"""Says which trials are made at each size, and their seeds; a new kind of trial is one entry here."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest

from kernelllm.core.types import Candidate, Problem
from kernelllm.judge.judge_settings import KERNELBENCH, STRICT
from kernelllm.judge.trials.inputs.input_distribution import (
    BLANK,
    BOUNDS,
    CLOSE,
    CONSTANTS,
    EQUAL,
    FAINT_NUMBERS,
    FAINT_SQUARES,
    FAR,
    HEAVY,
    INFINITE,
    NAN,
    PROBLEM,
    RARE,
    REPEATED,
    STEPS,
    TOUCHED,
    UNEVEN,
)
from kernelllm.judge.trials.state.parameter_states import AMPLIFIED, EXCHANGED, FAINT, FEW_LARGE, RANDOM, REFERENCE, TOUCHED_ALONE
from kernelllm.judge.trials.state.parameter_states import TOUCHED as TOUCHED_STATES

INIT_SEED = 42
"""The seed under which both models are built, as in KernelBench."""
_ROTATION = ("uniform", "large", "negative", "zeros", "tiny")
_ONCE = (STEPS, BLANK, NAN, INFINITE, FAR, FAINT_SQUARES, FAINT_NUMBERS, RARE, CLOSE, EQUAL, *BOUNDS)
"""At the first size alone."""


@dataclass(frozen=True)
class PlannedTrial:
    """One trial to be made."""

    distribution: str = PROBLEM
    """How inputs are drawn: see :mod:`kernelllm.judge.trials.inputs.input_distribution`."""
    state: str = REFERENCE
    """Which parameters both models have: see :mod:`kernelllm.judge.trials.state.parameter_states`."""
    only_if_fast: bool = False
    """Left out where one run of the reference takes long."""
    held: bool = False
    """Whether the candidate's output is held while all further trials of its size run, and must still be the same after them."""
    number: int = 0
    """Position in the schedule of its size; part of its seed."""

    @property
    def is_first(self) -> bool:
        """Whether it is the first at its size, right after the candidate was built."""
        return self.number == 0


def schedule(position: int, seeds: int, profile: str, *, small: bool = True) -> list[PlannedTrial]:
    """The trials at the size of ``position``: ``seeds`` of them, and more at the first size, which is small.

    ``profile``: KERNELBENCH has the problem's own inputs only, QUICK few trials more than seeds; ``small``: a float64 run costs
    little at this size.
    """
    variants = profile == STRICT
    planned = [*_every_size(position, seeds, profile != KERNELBENCH, small), *(_first_size(variants) if position == 0 else ())]
    held = 1 if variants and position == 0 else None
    return [replace(one, number=number, held=number == held) for number, one in enumerate(planned)]


def _every_size(position: int, seeds: int, variants: bool, small: bool) -> Iterator[PlannedTrial]:
    yield PlannedTrial()
    others = ("normal", *_ROTATION)
    for number in range(1, seeds):
        if not variants or (number == 1 and seeds > 2):
            yield PlannedTrial()
        elif number == 2 and position and not small:
            yield PlannedTrial(UNEVEN)
        elif number > 2 or (position and not small):
            yield PlannedTrial(others[(position + number - 1) % len(others)])
        else:
            yield PlannedTrial("normal")


def _first_size(variants: bool) -> Iterator[PlannedTrial]:
    """New kinds come last: a trial's seed follows its number, and some wrong candidates are seen with some seeds alone."""
    if variants:
        yield PlannedTrial(REPEATED, only_if_fast=True)
    yield PlannedTrial(state=RANDOM)
    if variants:
        yield PlannedTrial(CONSTANTS)
        yield PlannedTrial(HEAVY, only_if_fast=True)
        yield from [PlannedTrial(REPEATED, only_if_fast=True)] * 2  # after others, and after themselves
        yield from [PlannedTrial(TOUCHED, only_if_fast=True)] * 2  # one change may be where a candidate looks
        yield PlannedTrial("normal", FAINT, only_if_fast=True)
        yield PlannedTrial("normal", AMPLIFIED, only_if_fast=True)
        for distribution, state in zip_longest(_ROTATION, TOUCHED_STATES):
            yield PlannedTrial(distribution, only_if_fast=True)
            if state:  # right after a run in the state that is changed
                yield PlannedTrial("normal", state, only_if_fast=True)
        yield from (PlannedTrial("normal", state, only_if_fast=True) for state in TOUCHED_ALONE)
        yield from (PlannedTrial(kind, only_if_fast=True) for kind in _ONCE)
        yield PlannedTrial("normal", EXCHANGED, only_if_fast=True)
        yield PlannedTrial("normal", FEW_LARGE, only_if_fast=True)


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
