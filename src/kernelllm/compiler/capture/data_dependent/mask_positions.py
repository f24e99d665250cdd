"""Loops over the positions that a mask of one dimension holds, as over the experts that any token chose: they run over all positions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kernelllm.compiler.capture.data_dependent import row_count_tests
from kernelllm.compiler.capture.patching import patch

_FINDS = (torch.nonzero, torch.Tensor.nonzero, torch.argwhere, torch.Tensor.argwhere)


class MaskPositions(TorchFunctionMode):
    """While it is entered, such positions are known by the size that counts them."""

    def __init__(self) -> None:
        super().__init__()
        self._lengths: dict[Any, Any] = {}
        """How long the mask was whose positions a size counts."""
        self.used = False
        """Whether anything was taken that holds only where rows are found."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.__getitem__ and isinstance(args[1], _Row):
            return args[0][args[1].place].unsqueeze(0)  # as an index that is a tensor of one number
        if func is torch.Tensor.tolist and (found := self.positions(args[0])) is not None:
            return [one.tolist() if isinstance(one, _Row) else int(one) for one in found]
        result = self.called(func, args, kwargs)
        if func in _FINDS and not any(kwargs.values()) and args[0].dim() == 1 and isinstance(result.shape[0], torch.SymInt):
            self._lengths[result.shape[0].node.expr] = args[0].shape[0]
        return result

    def called(self, func: Any, args: Any, kwargs: Any) -> Any:
        """What a function gives."""
        return func(*args, **kwargs)

    def positions(self, tensor: Any) -> Iterator[Any] | None:
        """What a loop over the tensor meets, where it holds a mask's positions."""
        length = self._lengths.get(tensor.shape[0].node.expr) if tensor.dim() and isinstance(tensor.shape[0], torch.SymInt) else None
        if length is None:
            return None
        self.used = True
        return iter([_Position(k) if tensor.dim() == 1 else _Row(k) for k in range(int(length))])

    def loops(self, stack: ExitStack) -> None:
        """Until ``stack`` closes, loops over such positions run over all."""
        plain: Any = torch.Tensor.__iter__
        patch(stack, torch.Tensor, "__iter__", lambda tensor: self.positions(tensor) or plain(tensor))


@contextmanager
def rows_taken() -> Iterator[MaskPositions]:
    """While open, loops over such positions run over all, and some rows are found wherever a forward asks whether there are."""
    with MaskPositions() as known, ExitStack() as stack:
        known.loops(stack)
        row_count_tests.answer(stack, lambda: setattr(known, "used", True))
        yield known


class _Position(int):
    def item(self) -> int:
        return int(self)


class _Row:
    """One position as a tensor of one element: what a loop over the columns of ``nonzero()`` meets."""

    shape = (1,)

    def __init__(self, place: int) -> None:
        self.place = place

    def __getitem__(self, index: int) -> _Position:
        if index not in (0, -1):
            raise IndexError(index)
        return _Position(self.place)

    def __len__(self) -> int:
        return 1

    def __int__(self) -> int:
        return self.place

    __index__ = item = __int__

    def tolist(self) -> list[int]:
        return [self.place]

    def __eq__(self, other: object) -> bool:
        return self.place == other

    def __lt__(self, other: int) -> bool:
        return self.place < other

    def __le__(self, other: int) -> bool:
        return self.place <= other

    def __gt__(self, other: int) -> bool:
        return self.place > other

    def __ge__(self, other: int) -> bool:
        return self.place >= other

    __hash__ = None  # type: ignore[assignment]


__all__ = ["MaskPositions", "rows_taken"]
