"""Which trials are made at each size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kernelllm.judge.trials.input_distribution import PROBLEM, TOUCHED

_ROTATION = ("uniform", "large", "negative", "zeros", "tiny")


@dataclass(frozen=True)
class Plan:
    """One trial to be made. Numbers from 100 on are for references that do not take long."""

    kind: str
    number: int
    state: str = "reference"
    """Parameters: see :attr:`kernelllm.judge.observation.TrialRun.state`."""
    exact: bool = False
    """With inputs and convolution weights that TF32 holds exactly."""


def plans(position: int, seeds: int, *, variants: bool) -> Iterator[Plan]:
    """The trials at one size: ``seeds`` of them, and at the first size (position 0), which is small, other parameters as well.
    ``variants``: other kinds of inputs too, at the first size all of them."""
    yield Plan(PROBLEM, 0)
    others = ["normal", *_ROTATION] if variants else []
    for number in range(1, seeds):
        if number == 1 and seeds > 2:
            yield Plan(PROBLEM, number)
        elif others:
            yield Plan(others[(position + number - 1) % len(others)] if number > 2 or position else "normal", number)
        else:
            yield Plan(PROBLEM, number)
    if position == 0:
        yield Plan(PROBLEM, 90, "random")
        if variants:
            yield Plan(TOUCHED, 111)
            yield Plan("normal", 110, "faint")
        for extra, kind in enumerate(others[1:]):
            yield Plan(kind, 100 + extra)
