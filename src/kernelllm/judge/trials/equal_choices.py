"""Positions that ``topk``, ``sort``, ``kthvalue`` and ``median`` choose.

Among equal values torch promises no order, so that others are as right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kernelllm.problems.nested import mapped, tensors
from kernelllm.problems.without_dynamo import OperatorMode

_DIM = {"aten::topk": 2, "aten::sort": 1, "aten::kthvalue": 2, "aten::median": 1}
"""Which argument says along which dimension is chosen, by operator."""


@dataclass
class Choice:
    """Positions along a dimension of some numbers."""

    numbers: torch.Tensor
    dim: int
    positions: torch.Tensor

    @property
    def ambiguous(self) -> bool:
        """Whether some of the numbers are equal."""
        return bool(self.numbers.dim() and (self.numbers.sort(self.dim).values.diff(dim=self.dim) == 0).any())

    def as_right(self, other: torch.Tensor) -> bool:
        """Whether other positions hold the same numbers, each position once."""
        length = self.numbers.shape[self.dim] if self.numbers.dim() else 1
        if other.dim() < self.numbers.dim():
            return Choice(self.numbers, self.dim, self.positions.unsqueeze(self.dim)).as_right(other.unsqueeze(self.dim))
        if not self.numbers.dim() or bool(((other < 0) | (other >= length)).any()):
            return False
        once = bool((other.sort(self.dim).values.diff(dim=self.dim) != 0).all())
        return once and torch.equal(self.numbers.gather(self.dim, other), self.numbers.gather(self.dim, self.positions))


class ChoicesOfARun(OperatorMode):
    """Notes what these operators chose; a sort that is asked to be stable has one answer."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Choice] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result, kwargs = func(*args, **(kwargs or {})), kwargs or {}
        name = func._schema.name
        if name in _DIM and not kwargs.get("stable") and isinstance(result, tuple | list):
            place = _DIM[name]
            dim = kwargs.get("dim", args[place] if len(args) > place else -1)
            self.found.append(Choice(args[0], dim, result[1]))
        return result


class LowestPositions(OperatorMode):
    """Among equal values ``topk`` and ``sort`` take the lower position first, as a stable sort does."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in (torch.ops.aten.topk.default, torch.ops.aten.sort.default) or not args[0].dim():
            return func(*args, **kwargs)
        given = {a.name: a.default_value for a in func._schema.arguments} | kwargs
        given |= {a.name: value for a, value in zip(func._schema.arguments, args, strict=False)}
        ordered = torch.sort(args[0], dim=given["dim"], descending=given.get("descending", given.get("largest")), stable=True)
        return tuple(t.narrow(given["dim"], 0, given["k"]) if "k" in given else t for t in ordered)


def as_chosen(value: Any, expected: Any, choices: Callable[[], list[Choice]]) -> Any:
    """A candidate's output with the reference's positions where its own are as right; itself where there are none."""
    mine, theirs = list(tensors(value)), list(tensors(expected))
    if [(t.shape, t.dtype) for t in mine] != [(t.shape, t.dtype) for t in theirs] or torch.int64 not in {t.dtype for t in theirs}:
        return value
    known, taken = choices(), iter(theirs)

    def chosen(tensor: torch.Tensor) -> torch.Tensor:
        reference = next(taken)
        same = (c for c in known if c.positions.shape == tensor.shape and torch.equal(c.positions, reference))
        return reference if tensor.dtype is torch.int64 and any(c.as_right(tensor) for c in same) else tensor

    return mapped(value, chosen)
