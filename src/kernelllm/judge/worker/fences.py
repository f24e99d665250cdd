"""Fences around the tensors that a candidate allocates, and poison in them until it is overwritten.

On a GPU nothing else tells where kernels write outside of tensors. On a CPU the interpreter knows the bounds of every tensor
(:mod:`kernelllm.judge.worker.memory`); there the poison alone counts, since memory that nobody wrote is often zero by luck.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelllm.judge.tensors import GUARD, POISON, extent
from kernelllm.judge.worker.failures import IllegalAccess

_EMPTY = frozenset({"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"})
_FILLED = frozenset({"zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full", "clone",
                     "_to_copy"})  # fmt: skip


class Fences(TorchDispatchMode):
    """While this mode is on, each new tensor lies between :data:`GUARD` bytes of poison; what nobody filled is poison too, NaN in every
    floating type. :meth:`check` tells whether the poison still stands. A storage begins where its tensor does, as it would without."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would import all of dynamo to say that it skips this class

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._fenced: list[tuple[torch.Tensor, torch.Tensor]] = []
        """The bytes with their guards, kept so that nobody else gets them, and the tensor within."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = str(func).split(".")[1] if str(func).startswith("aten.") else ""
        if (name not in _EMPTY and name not in _FILLED) or not _plain(result):
            return result
        fenced = self._copy(result)
        if name in _FILLED:
            fenced.copy_(result)
        return fenced

    def _copy(self, like: torch.Tensor) -> torch.Tensor:
        size = extent(like.shape, like.stride()) * like.dtype.itemsize
        memory = torch.full((GUARD + size + GUARD,), POISON, dtype=torch.uint8, device=like.device)
        tensor = _over(memory, GUARD, size).view(like.dtype).as_strided(like.shape, like.stride())
        self._fenced.append((memory, tensor))
        return tensor

    def check(self) -> None:
        """Raise IllegalAccess where a kernel wrote into a guard; forget all tensors so far."""
        fenced, self._fenced = self._fenced, []
        for device in {memory.device for memory, _ in fenced}:
            there = [(memory, tensor) for memory, tensor in fenced if memory.device == device]
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            guards = torch.stack([torch.cat((memory[:GUARD], memory[-GUARD:])) for memory, _ in there]) != POISON
            for which in guards.any(1).nonzero().flatten().tolist():
                raise IllegalAccess(_explain(guards[which], there[which][1]))


def _plain(tensor: Any) -> bool:
    """Whether this is memory that kernels work on: not sparse, quantised, empty, without memory, nor made within a CUDA graph."""
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or tensor.is_quantized or tensor.numel() == 0:
        return False
    return tensor.device.type == "cpu" or (tensor.is_cuda and not torch.cuda.is_current_stream_capturing())


def _over(memory: torch.Tensor, start: int, size: int) -> torch.Tensor:
    """uint8[size] with a storage of its own over bytes of ``memory``."""
    if memory.is_cuda:
        from kernelllm.judge import cudaipc

        return cudaipc.as_tensor(memory.data_ptr() + start, size, memory.device.index, memory)
    return torch.from_numpy(memory.numpy()[start : start + size])


def _explain(written: torch.Tensor, tensor: torch.Tensor) -> str:
    places = written.nonzero().flatten().tolist()
    before = [GUARD - at for at in places if at < GUARD]
    gap = max(before) if before else places[0] - GUARD
    side = "before the start" if before else "past the end"
    what = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
    return (
        f"illegal memory access: a kernel wrote {len(places)} byte(s) outside of a tensor that the candidate allocated; the first is "
        f"{gap} bytes {side} of {what}. Mask the access or fix the offsets."
    )
