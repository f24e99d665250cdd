"""Lists of what all steps of a loop have made, and slices with all steps in front, where a loop is an operator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from kernelllm.compiler.recurrences.step_graphs import need


class StepStack:
    """What all steps of a loop have put into a list."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def turned(self) -> StepStack:
        """From the last step to the first."""
        return StepStack(self.tensor.flip(0))


class StepList(list[Any]):
    """A list that holds tensors and :class:`StepStack`, as a list of tensors."""

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return self._part(at)
        need(isinstance(at, int) and at in (0, -1), "an element of what its steps made is read")
        item = super().__getitem__(at)
        return item.tensor[at] if isinstance(item, StepStack) else item

    def _part(self, at: slice) -> StepList:
        if (at.start, at.stop, at.step) == (None, None, -1):
            return StepList(reversed(self))
        need(at.step in (None, 1) and at.start in (None, 0, 1) and at.stop in (None, -1), "a part of what its steps made is read")
        items = list(self)
        for place, wanted in ((0, at.start == 1), (-1, at.stop == -1)):
            if wanted and isinstance(items[place], StepStack):
                whole = items[place].tensor
                items[place] = StepStack(whole[1:] if place == 0 else whole[:-1])
            elif wanted:
                del items[place]
        return StepList(items)

    def __reversed__(self) -> Iterator[Any]:
        return iter([item.turned() if isinstance(item, StepStack) else item for item in list(self)[::-1]])

    def reverse(self) -> None:
        """Turn it around in place."""
        self[:] = list(reversed(self))


def grown(items: Sequence[Any], tensor: torch.Tensor) -> StepList:
    """The list with what all steps have made at its end."""
    return StepList([*items, StepStack(tensor)])


def stacked(items: Sequence[Any], dim: int = 0) -> torch.Tensor:
    """``torch.stack`` of a list that holds :class:`StepStack`."""
    parts = [item.tensor if isinstance(item, StepStack) else item.unsqueeze(0) for item in items]
    whole: torch.Tensor = parts[0] if len(parts) == 1 else torch.cat(parts)
    return whole.movedim(0, dim).contiguous()


def cated(items: Sequence[Any], dim: int = 0) -> torch.Tensor:
    """``torch.cat`` of a list that holds :class:`StepStack`."""
    need(all(isinstance(item, StepStack) for item in items) and len(items) == 1, "a list holds more than its steps")
    whole: torch.Tensor = items[0].tensor
    at = dim % (whole.dim() - 1)
    return whole.movedim(0, at).flatten(at, at + 1)


def filled(tensor: torch.Tensor, dim: int, first: Any, items: Sequence[Any], backwards: bool) -> torch.Tensor:
    """A tensor whose slices from ``first`` on are what the steps have made."""
    made = stacked(items)
    made = (made.flip(0) if backwards else made).movedim(0, dim)
    return tensor.slice_scatter(made, dim, first, first + made.shape[dim])


def slice_at(tensor: torch.Tensor, dim: int, at: Any) -> torch.Tensor:
    """A slice at a place that may be a symbol."""
    return tensor.select(dim, at) if isinstance(at, int) else tensor.narrow(dim, at, 1).squeeze(dim)


def as_slice(value: Any, like: torch.Tensor) -> torch.Tensor:
    """What is written into a slice, as the slice has it then."""
    if not isinstance(value, torch.Tensor):
        return torch.full_like(like, value)
    return value.to(like.dtype).expand(like.shape)


def slices(tensor: torch.Tensor, dim: int, start: Any, stop: Any, *, backwards: bool = False) -> torch.Tensor:
    """The slices along a dimension, with the steps in front."""
    need(isinstance(tensor, torch.Tensor) and not (isinstance(start, int) and start < 0), "its slices are of no tensor")
    made: torch.Tensor = _AsGiven.apply(tensor).movedim(dim, 0)[start:stop]  # type: ignore[no-untyped-call]
    return made.flip(0) if backwards else made


def counts(stop: Any) -> torch.Tensor:
    """The counts up to a loop's last one."""
    return torch.arange(stop)


class _AsGiven(torch.autograd.Function):
    """A tensor as it is; its gradient is row-major, as eager gathers it slice by slice."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad.contiguous()
