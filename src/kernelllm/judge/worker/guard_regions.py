"""Poisons tensors that a candidate allocates until they are written, and, on a GPU, puts a guard region behind each.

Memory that nobody wrote is often zero by luck. And on a GPU nothing else tells where kernels write past the end of a tensor; on a CPU
an emulator knows the bounds of all.
"""

from __future__ import annotations

from typing import Any

import torch

from kernelllm.backends.base import IllegalAccess
from kernelllm.judge.tensor_leaves import tensor_leaves
from kernelllm.judge.transport.arenas import GUARD, POISON, extent
from kernelllm.problems.without_dynamo import OperatorMode

_EMPTY = frozenset({"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"})
_FILLED = frozenset({"zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full", "clone",
                     "_to_copy"})  # fmt: skip
_RESIZING = frozenset({"resize_", "resize_as_", "set_"})
_MOST, _ALL = 2**26, 2**28
"""Bytes: larger tensors stay as they are (a workspace may be far larger than what is ever touched of it), and so do all after so many."""


class GuardRegions(OperatorMode):
    """While this mode is on, a new tensor that nobody filled is poison, NaN in every floating type. ``guards``: behind each new tensor
    lie :data:`GUARD` bytes of poison more; :meth:`check` tells whether they still do. In all else the tensors are as they would be."""

    def __init__(self, *, guards: bool) -> None:
        super().__init__()
        self._guards, self._left = guards, _ALL
        self._guarded: dict[int, tuple[torch.Tensor, str]] = {}
        """By address: the bytes with their guard, kept so that nobody else gets them, and what the tensor is."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        _, name, overload = (str(func) + "..").split(".")[:3]
        if self._guarded and (name in _RESIZING or "out" in overload):
            for tensor in tensor_leaves(args, kwargs):
                if tensor.layout is torch.strided:
                    self._guarded.pop(tensor.untyped_storage().data_ptr(), None)  # a resized tensor may grow into its guard
        result = func(*args, **(kwargs or {}))
        if name not in (_EMPTY | _FILLED if self._guards else _EMPTY) or not _plain(result):
            return result
        self._left -= _size(result) if self._guards else 0
        if not self._guards or self._left < 0:
            if name in _EMPTY:
                _bytes(result).fill_(POISON)
            return result
        guarded = self._copy(result)
        if name in _FILLED:
            guarded.copy_(result)
        return guarded

    def _copy(self, like: torch.Tensor) -> torch.Tensor:
        size = _size(like)
        memory = torch.full((size + GUARD,), POISON, dtype=torch.uint8, device=like.device)
        tensor = torch.empty(0, dtype=like.dtype, device=like.device)
        tensor.set_(memory.untyped_storage(), 0, like.shape, like.stride())
        self._guarded[memory.data_ptr()] = memory, f"{str(like.dtype).removeprefix('torch.')}{list(like.shape)}"
        return tensor

    def check(self) -> None:
        """Raise IllegalAccess where a kernel wrote into a guard; forget all tensors so far."""
        guarded, self._guarded = list(self._guarded.values()), {}
        for device in {memory.device for memory, _ in guarded}:
            there = [(memory, what) for memory, what in guarded if memory.device == device]
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            guards = torch.stack([memory[-GUARD:] for memory, _ in there]) != POISON
            for which in guards.any(1).nonzero().flatten().tolist():
                raise IllegalAccess(_explain(guards[which], there[which][1]))


def _plain(tensor: Any) -> bool:
    """Whether this is memory that kernels work on: not sparse, quantised, empty, huge, without memory, nor made within a CUDA graph."""
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or tensor.is_quantized or not 0 < _size(tensor) <= _MOST:
        return False
    return tensor.device.type == "cpu" or (tensor.is_cuda and not torch.cuda.is_current_stream_capturing())


def _size(tensor: torch.Tensor) -> int:
    """Bytes from its first element to its last."""
    return extent(tensor.shape, tensor.stride()) * tensor.dtype.itemsize


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage(), 0, (_size(tensor),), (1,))


def _explain(written: torch.Tensor, what: str) -> str:
    places = written.nonzero().flatten().tolist()
    return (
        f"illegal memory access: a kernel wrote {len(places)} byte(s) outside of a tensor that the candidate allocated; the first is "
        f"{places[0]} bytes past the end of {what}. Mask the access or fix the offsets."
    )
