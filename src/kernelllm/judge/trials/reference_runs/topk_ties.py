"""Records and changes the positions that ``topk``, ``sort``, ``kthvalue`` and ``median`` choose among equal values.

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
_MANY = 4
"""Equal numbers that are no chance of rounding."""


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

    @property
    def saturated(self) -> bool:
        """Whether most rows have many numbers equal to the first or the last that is taken, as where a sigmoid has reached one."""
        if not self.numbers.dim() or self.positions.dim() < self.numbers.dim() or not self.positions.numel():
            return False
        ends = (self.positions.narrow(self.dim, at, 1) for at in (0, self.positions.shape[self.dim] - 1))
        equal = [(self.numbers == self.numbers.gather(self.dim, end)).sum(self.dim).flatten() for end in ends]
        return any(int(count.median()) >= _MANY for count in equal)

    def as_right(self, other: torch.Tensor) -> bool:
        """Whether other positions hold the same numbers, each position once."""
        length = self.numbers.shape[self.dim] if self.numbers.dim() else 1
        if other.dim() < self.numbers.dim():
            return Choice(self.numbers, self.dim, self.positions.unsqueeze(self.dim)).as_right(other.unsqueeze(self.dim))
        if not self.numbers.dim() or bool(((other < 0) | (other >= length)).any()):
            return False
        once = bool((other.sort(self.dim).values.diff(dim=self.dim) != 0).all())
        return once and torch.equal(self.numbers.gather(self.dim, other), self.numbers.gather(self.dim, self.positions))


class RecordedChoices(OperatorMode):
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


class OrderedTies(OperatorMode):
    """Among equal values ``topk`` and ``sort`` take the lower position first, as a stable sort does, or the higher one.

    ``first``: the position that counts as the lowest, those before it come after all others. ``found``: what is taken."""

    def __init__(self, *, highest: bool = False, first: int = 0) -> None:
        super().__init__()
        self._highest, self._first = highest, first
        self.found: list[Choice] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = _given(func, args, kwargs or {})
        if given is None:
            return func(*args, **(kwargs or {}))
        numbers, dim = args[0], given["dim"]
        places = torch.arange(numbers.shape[dim], device=numbers.device).roll(-self._first)
        places = places.flip(0) if self._highest else places
        descending = bool(given.get("descending", given.get("largest")))
        order = torch.sort(numbers.index_select(dim, places), dim=dim, descending=descending, stable=True).indices
        positions = _cut(places[order], given)
        self.found.append(Choice(numbers, dim, positions))
        return numbers.gather(dim, positions), positions


class ForcedTies(OperatorMode):
    """``topk`` and ``sort`` take these positions, call by call, wherever they hold the same numbers as those that they would take."""

    def __init__(self, positions: list[torch.Tensor]) -> None:
        super().__init__()
        self._left = iter(positions)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result, given = func(*args, **(kwargs or {})), _given(func, args, kwargs or {})
        wanted = next(self._left, None) if given is not None else None
        if given is None or wanted is None or wanted.shape != result[1].shape:
            return result
        numbers, dim = args[0], given["dim"]
        same = (numbers.gather(dim, wanted) == result[0]).all(dim, keepdim=True)
        positions = torch.where(same, wanted, result[1])
        return numbers.gather(dim, positions), positions


def _given(func: Any, args: Any, kwargs: Any) -> dict[str, Any] | None:
    """The arguments of an operator that chooses, by name; None of any other."""
    if func not in (torch.ops.aten.topk.default, torch.ops.aten.sort.default) or not args[0].dim():
        return None
    given: dict[str, Any] = {a.name: a.default_value for a in func._schema.arguments} | kwargs
    return given | {a.name: value for a, value in zip(func._schema.arguments, args, strict=False)}


def _cut(positions: torch.Tensor, given: dict[str, Any]) -> torch.Tensor:
    return positions.narrow(given["dim"], 0, given["k"]) if "k" in given else positions


def nearest_elements(value: Any, others: list[Any]) -> Any:
    """Of several outputs, element by element, what is nearest to ``value``. They have the same structure."""
    theirs = zip(*(list(tensors(other)) for other in (value, *others)), strict=True)

    def of(_: torch.Tensor) -> torch.Tensor:
        mine, *several = next(theirs)
        candidates = torch.stack(several)
        if not candidates.is_floating_point() or candidates.shape[1:] != mine.shape:
            return candidates[0]
        return candidates.gather(0, (candidates.double() - mine.double()).abs().nan_to_num(torch.inf).argmin(0, keepdim=True))[0]

    return mapped(others[0], of)  # what is no tensor is theirs


def takes_position_twice(value: Any, orders: list[tuple[list[Choice], Any]], tolerance: Callable[[torch.dtype], float]) -> bool:
    """Whether an output has one of several equal numbers in two places.

    ``orders``: what the reference chooses, and gives, under different orders of equal numbers. Outputs with an element for each choice, or
    a row of them, are looked at: what they hold says which position was taken.
    """
    for choices in zip(*(found for found, _ in orders), strict=True):
        positions = torch.stack([choice.positions for choice in choices])
        for mine, *theirs in zip(tensors(value), *(tensors(output) for _, output in orders), strict=True):
            fits = mine.is_floating_point() and mine.shape[: positions.dim() - 1] == positions.shape[1:] and mine.shape == theirs[0].shape
            if fits and _repeats(mine, torch.stack(theirs), positions, choices[0].dim, tolerance(mine.dtype)):
                return True
    return False


def _repeats(mine: torch.Tensor, theirs: torch.Tensor, positions: torch.Tensor, dim: int, tolerance: float) -> bool:
    """``theirs`` and ``positions``: [orders, ...]. An element whose value no single position explains says nothing, and neither does an
    output that depends on more than the element's own position."""
    size = tolerance * (1 + theirs.abs().amax(0))
    ordered, order = positions.sort(0)
    wide = order.reshape(*order.shape, *[1] * (theirs.dim() - order.dim())).expand_as(theirs)
    same = ordered.diff(dim=0) == 0
    differs = (theirs.gather(0, wide).diff(dim=0).abs() > size).reshape(*same.shape, -1).any(-1)
    if bool((differs & same).any()):
        return False
    near = ((theirs - mine).abs() <= size).reshape(*positions.shape, -1).all(-1)
    low, high = positions.masked_fill(~near, positions.max() + 1).amin(0), positions.masked_fill(~near, -1).amax(0)
    lengths = [1] * low.dim()
    lengths[dim] = -1
    apiece = -1 - torch.arange(low.shape[dim], device=low.device).reshape(lengths)
    taken = torch.where(near.any(0) & (low == high), low, apiece)
    return bool((taken.sort(dim).values.diff(dim=dim) == 0).any())


def with_reference_positions(value: Any, expected: Any, choices: Callable[[], list[Choice]]) -> Any:
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
