"""What the reference gives for the positions that a candidate chose by a top-k, where rounding alone tells those from its own.

Of scores in half precision dozens lie so near to the last that is taken that each rounding takes others. Whoever puts them in order moves
all behind an exchanged one, and the rows that are gathered with them: no output under another rounding is near. Only sets are let pass that
a candidate gives out itself, as numbers of 64 bits in the shape of the top-k's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kernelllm.problems.without_dynamo import OperatorMode

_ROUNDINGS = 2.0
"""Units of rounding, of the last number that is taken, by which others may be smaller."""
_OF_SINGLE = 64 * torch.finfo(torch.float32).eps


class ChosenSets(OperatorMode):
    """``topk`` takes these positions where it would take numbers that are as large but for rounding.

    ``step``: a unit of rounding of what the scores are made of, 0 for single precision. ``taken``: how many calls did."""

    def __init__(self, positions: Sequence[torch.Tensor], step: float) -> None:
        super().__init__()
        self._positions, self._step, self.taken = positions, step, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is not torch.ops.aten.topk.default or not args[0].dim():
            return result
        given = {a.name: a.default_value for a in func._schema.arguments} | (kwargs or {})
        given |= {a.name: value for a, value in zip(func._schema.arguments, args, strict=False)}
        numbers, dim, largest = args[0], given["dim"], bool(given["largest"])
        for wanted in self._positions:
            if wanted.shape == result[1].shape and self._near(numbers, wanted, result[0], dim, largest):
                self.taken += 1
                picked, order = numbers.gather(dim, wanted).sort(dim, descending=largest, stable=True)
                return picked, wanted.gather(dim, order)
        return result

    def _near(self, numbers: torch.Tensor, wanted: torch.Tensor, taken: torch.Tensor, dim: int, largest: bool) -> bool:
        if bool(((wanted < 0) | (wanted >= numbers.shape[dim])).any()) or not bool((wanted.sort(dim).values.diff(dim=dim) != 0).all()):
            return False
        room = _ROUNDINGS * self._step if self._step else _OF_SINGLE
        last = (taken.amin(dim, keepdim=True) if largest else taken.amax(dim, keepdim=True)).double()
        picked = numbers.gather(dim, wanted).double()
        missing = last - picked if largest else picked - last
        return bool((missing <= room * last.abs()).all())


__all__ = ["ChosenSets"]
