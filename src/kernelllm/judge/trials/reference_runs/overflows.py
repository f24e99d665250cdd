"""Tells whether a reference computes numbers on the way that leave the range of their type, or whose squares do.

On inputs that its problem does not draw, an infinity that comes up inside may end as a number in one order of the same operations, and as
NaN in another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from kernelllm.judge.checks.operator_families import HEAVY, family, operator, weight
from kernelllm.judge.trials.comparison.compare import safe_number
from kernelllm.problems import nested
from kernelllm.problems.without_dynamo import OperatorMode

_POLES = ("log", "div", "reciprocal", "rsqrt", "masked_fill", "where", "fill", "full")
"""Parts of the names of operators that give infinities of numbers of usual size, or whatever they are told."""
_PART = 0.5
"""Share of an output that such infinities may explain."""


def overflows(run_under: Callable[[NotedOverflows], Any]) -> bool:
    """Whether a run does. ``run_under``: makes it, with a mode that sees every operator."""
    noted = NotedOverflows()
    run_under(noted)
    return noted.found


class NotedOverflows(OperatorMode):
    """``found``: whether arithmetic made such a number of others that are none."""

    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result, name = func(*args, **(kwargs or {})), str(func)
        if not self.found and (weight(name) or family(name) in HEAVY) and not any(part in operator(name) for part in _POLES):
            made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.numel()]
            least = min((safe_number(leaf.dtype) for leaf in made), default=0.0)
            largest, given = max(map(_largest, made), default=0.0), max(map(_largest, tree_leaves((args, kwargs or {}))), default=0.0)
            self.found = given <= least < largest or (math.isinf(largest) and not math.isinf(given))
        return result


def _largest(leaf: Any) -> float:
    """The size of the largest number; NaN counts as none."""
    if isinstance(leaf, torch.Tensor):
        plain = leaf.is_floating_point() and leaf.numel()
        return float(leaf.abs().nan_to_num(0.0, torch.inf).max()) if plain else 0.0
    return abs(leaf) if isinstance(leaf, int | float) else 0.0


def with_finite_numbers(value: Any, expected: Any) -> Any:
    """A candidate's output with the reference's numbers where it alone has NaN or infinities; itself where these are too many, or none."""
    theirs, many = iter(list(nested.tensors(expected))), False

    def settled(mine: torch.Tensor) -> torch.Tensor:
        nonlocal many
        other = next(theirs)
        if not mine.is_floating_point() or mine.shape != other.shape:
            return mine
        lost = nested.finite(other) & ~nested.finite(mine)
        many = many or int(lost.sum()) > _PART * mine.numel()
        return torch.where(lost, other, mine) if bool(lost.any()) else mine

    made = nested.mapped(value, settled)
    return value if many else made
