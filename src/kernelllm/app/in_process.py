"""Written kernels run in this process: on the GPU of their tensors, or in Triton's interpreter where ``TRITON_INTERPRET=1`` asks for it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from kernelllm.backends.base import open_backend
from kernelllm.core.types import DEFAULT_BACKEND

if TYPE_CHECKING:
    import torch


def runs_without_gpu() -> bool:
    """Whether kernels run in this process with no GPU: ``TRITON_INTERPRET=1`` was set."""
    return open_backend(DEFAULT_BACKEND).runs_here()


def device_context(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """A context in which kernels are launched on that device, by Triton's rule on the current device's stream."""
    if device.type != "cuda":
        return contextlib.nullcontext()
    import torch

    return contextlib.nullcontext() if device.index in (None, torch.cuda.current_device()) else torch.cuda.device(device)
