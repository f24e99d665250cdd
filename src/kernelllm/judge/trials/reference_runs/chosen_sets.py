"""What the reference gives for the positions that a candidate chose, where rounding alone tells them from its own.

``topk`` of scores in half precision has dozens that lie so near to the last that is taken that each rounding takes others. Whoever puts
them in order moves all behind an exchanged one, and the rows that are gathered with them: no output under another rounding is near.
``argmax`` and ``sort`` exchange near ones as well. Only positions are let pass that a candidate gives out itself, as numbers of 64 bits in
the shape of the operator's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelllm.problems.without_dynamo import OperatorMode

_ROUNDINGS = 2.0
"""Units of rounding, of the last number that is taken, by which others may be smaller."""
_OF_EAGER = 2.0
"""The same in errors of eager's own numbers, each of about that size."""
_OF_SINGLE = 64 * torch.finfo(torch.float32).eps
_UNDERFLOW = 1e-30
"""Numbers that are nearer to each other hang on what a processor makes of the smallest ones."""
_ALL = -1
"""As many as there are, in order."""
_aten = torch.ops.aten
_OPERATORS = {
    _aten.topk.default: None, _aten.argmax.default: 1, _aten.argmin.default: 1, _aten.max.dim: 1, _aten.min.dim: 1,
    _aten.sort.default: _ALL, _aten.sort.stable: _ALL,
}  # fmt: skip
"""How many numbers each takes; None where an argument says so."""


@dataclass(frozen=True)
class _Choice:
    """A call of an operator that chooses."""

    numbers: torch.Tensor
    dim: int
    largest: bool
    takes: int | None
    kept: bool
    """Whether what is chosen keeps the dimension."""
    ordered: bool
    """Whether torch promises which of equal numbers comes first."""

    @property
    def signed(self) -> torch.Tensor:
        """The numbers in float64, of which the largest are chosen."""
        return self.numbers.double() if self.largest else -self.numbers.double()


class ExactNumbers(OperatorMode):
    """Notes, in a run in float64, the numbers among which is chosen, call by call."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[torch.Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (choice := _choice(func, args, kwargs or {})) is not None:
            self.found.append(choice.signed)
        return func(*args, **(kwargs or {}))


class ChosenSets(OperatorMode):
    """Operators take these positions where they would take numbers that are as large but for rounding.

    ``step``: a unit of rounding of what the numbers are made of, 0 for single precision. ``exact``: the numbers in float64, call by call.
    ``equal``: whether one of equal numbers may stand for another where torch says which is taken. ``taken``: how many calls did."""

    def __init__(self, positions: Sequence[torch.Tensor], step: float, exact: Sequence[torch.Tensor] = (), equal: bool = False) -> None:
        super().__init__()
        self._positions, self._step, self._equal, self.taken = positions, step, equal, 0
        self._exact: Iterator[torch.Tensor] = iter(exact)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if (choice := _choice(func, args, kwargs or {})) is None:
            return result
        exact = next(self._exact, None)
        values, own = result if isinstance(result, tuple | list) else (None, result)
        for wanted in self._positions:
            if wanted.shape != own.shape or torch.equal(wanted, own):
                continue
            rows, mine = (t if choice.kept else t.unsqueeze(choice.dim) for t in (wanted, own))
            if not self._near(choice, rows, mine, exact):
                continue
            self.taken += 1
            if values is None:
                return wanted.clone()
            if choice.takes is None:
                picked, order = choice.numbers.gather(choice.dim, rows).sort(dim=choice.dim, descending=choice.largest, stable=True)
                return picked, rows.gather(choice.dim, order)
            return choice.numbers.gather(choice.dim, rows).reshape(values.shape), wanted.clone()
        return result

    def _near(self, choice: _Choice, wanted: torch.Tensor, own: torch.Tensor, exact: torch.Tensor | None) -> bool:
        """Whether no number at the wanted positions is smaller than one in its place, by more than rounding. Positions: with ``dim``."""
        dim, numbers = choice.dim, choice.signed
        if bool(((wanted < 0) | (wanted >= numbers.shape[dim])).any()) or not bool((wanted.sort(dim).values.diff(dim=dim) != 0).all()):
            return False
        picked, taken = numbers.gather(dim, wanted), numbers.gather(dim, own)
        known = exact is not None and exact.shape == numbers.shape and bool(exact.isfinite().all())
        if choice.ordered and not self._equal:
            equal = (picked == taken) & (wanted != own)
            if exact is not None and known:  # rounding has made some equal
                equal &= exact.gather(dim, wanted) == exact.gather(dim, own)
            if bool(equal.any()):
                return False
        last = taken if choice.takes == _ALL else taken.amin(dim, keepdim=True)
        room = (_ROUNDINGS * self._step if self._step else _OF_SINGLE) * last.abs() + _UNDERFLOW
        if exact is not None and known:
            room = torch.maximum(room, _OF_EAGER * _error_near(numbers, exact, last, dim))
        return bool(((last - picked <= room) | (last == picked)).all())


def _error_near(numbers: torch.Tensor, exact: torch.Tensor, last: torch.Tensor, dim: int) -> torch.Tensor:
    """How far numbers of about the size of the ``last`` are from those of float64, the furthest of each row."""
    size = last.abs().amin(dim, keepdim=True), last.abs().amax(dim, keepdim=True)
    about = (exact.abs() >= size[0] / 2) & (exact.abs() <= 2 * size[1])
    return torch.where(about, (numbers - exact).abs().nan_to_num(0.0), 0.0).amax(dim, keepdim=True)


def _choice(func: Any, args: Any, kwargs: Any) -> _Choice | None:
    if func not in _OPERATORS or not args[0].dim() or not args[0].is_floating_point():
        return None
    given = {a.name: a.default_value for a in func._schema.arguments} | kwargs
    given |= {a.name: value for a, value in zip(func._schema.arguments, args, strict=False)}
    if given["dim"] is None or not args[0].shape[given["dim"]]:
        return None
    takes, name = _OPERATORS[func], func._schema.name
    largest = bool(given.get("largest", given.get("descending", "max" in name)))
    ordered = takes == 1 or bool(given.get("stable"))
    return _Choice(args[0], given["dim"], largest, takes, takes != 1 or bool(given["keepdim"]), ordered)


__all__ = ["ChosenSets", "ExactNumbers"]
