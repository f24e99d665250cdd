"""Runs a reference with other tie breaks: what it gives where it chooses otherwise among equal values is as right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from kernelllm.judge.trials.comparison.compare import Expected
from kernelllm.judge.trials.comparison.same_computation import agrees
from kernelllm.judge.trials.reference_runs.topk_ties import Choice, ForcedTies, OrderedTies, RecordedChoices

_ORDERS = 64
"""Of so many numbers, each may be the first of equal ones."""


@dataclass(frozen=True)
class TieBreaks:
    """One run of a reference, to be repeated. Each callable gives None, or nothing, where that failed."""

    under: Callable[[AbstractContextManager[Any]], Any]
    """The output under a mode that sees every operator, in working precision."""
    in_double_under: Callable[[AbstractContextManager[Any]], Any]
    """The same in float64."""
    perturbed: Callable[[list[torch.Tensor]], Iterator[Any]]
    """Outputs in float64 with these positions chosen, everything moved by rounding."""

    def choices(self) -> list[Choice]:
        """The positions that the reference chose among values."""
        run = RecordedChoices()
        self.under(run)
        return run.found

    def other_ties(self) -> Iterator[Expected]:
        """The output with the lowest positions among equal values, with the highest, and with those that float64 takes."""
        if not any(choice.ambiguous for choice in self.choices()):
            return
        for highest in (False, True):
            order = OrderedTies(highest=highest)
            value, positions = self.under(order), [c.positions for c in order.found]
            if value is None:
                continue
            exact = self.in_double_under(ForcedTies(positions))
            has_exact = exact is not None and agrees(value, exact)
            yield Expected(value, exact, has_exact)
            if has_exact:  # beside the order, rounding may decide something
                yield Expected(value, exact, has_exact, tuple(self.perturbed(positions)))
        for highest in (False, True):
            self.in_double_under(order := OrderedTies(highest=highest))
            value = self.under(ForcedTies([c.positions for c in order.found]))
            if value is not None:
                yield Expected(value)

    def rotated_ties(self) -> Iterator[tuple[list[Choice], Any]]:
        """Choices and outputs under orders of equal values, each of them once before and once behind all others, if few."""
        lengths = [c.numbers.shape[c.dim] for c in self.choices() if c.ambiguous]
        firsts = range(max(lengths) if lengths and max(lengths) <= _ORDERS else 0)
        for order in (OrderedTies(highest=highest, first=first) for highest in (False, True) for first in firsts):
            value = self.under(order)
            if value is not None:
                yield order.found, value


__all__ = ["TieBreaks"]
