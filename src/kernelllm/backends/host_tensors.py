"""Which tensors lie on the host, where there is no GPU and all of them have memory of the CPU: those that candidate code made there."""

from __future__ import annotations

from typing import Any

import torch

_MARK = "_kernelllm_on_host"


def mark(value: Any, on_host: bool = True) -> None:
    """Say of the memory of a tensor, or of several in a list, where it lies. All views of it say the same."""
    for tensor in value if isinstance(value, list | tuple) else (value,):
        if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided:
            setattr(tensor.untyped_storage(), _MARK, on_host)


def on_host(memory: torch.Tensor | torch.UntypedStorage) -> bool:
    """Whether kernels on a GPU could not read it."""
    if isinstance(memory, torch.Tensor):
        return memory.layout is torch.strided and on_host(memory.untyped_storage())
    return getattr(memory, _MARK, False)
