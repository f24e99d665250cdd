"""Which tensors candidate code made on the host: on a machine without a GPU, all tensors have memory of the CPU."""

from __future__ import annotations

from typing import Any

import torch

_MARK = "_kernelllm_on_host"


def mark(value: Any, on_host: bool = True) -> None:
    """Say of the memory of a tensor, or of several in a list, where it lies. All views of it say the same."""
    for tensor in value if isinstance(value, list | tuple) else (value,):
        if isinstance(tensor, torch.Tensor) and has_storage(tensor):
            setattr(tensor.untyped_storage(), _MARK, on_host)


def has_storage(tensor: torch.Tensor) -> bool:
    """Whether its memory can be asked for: not of a sparse tensor, nor within ``torch.func``, nor of a derivative that is zero."""
    strided = tensor.layout is torch.strided
    return strided and not torch._C._functorch.is_functorch_wrapped_tensor(tensor) and not tensor._is_zerotensor()


def on_host(memory: torch.Tensor | torch.UntypedStorage) -> bool:
    """Whether kernels on a GPU could not read it."""
    if isinstance(memory, torch.Tensor):
        return has_storage(memory) and on_host(memory.untyped_storage())
    return getattr(memory, _MARK, False)
