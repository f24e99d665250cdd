"""Written kernels run in this process: on the GPU of their tensors, or in Triton's interpreter where ``TRITON_INTERPRET=1`` asks for it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from kernelllm.backends.base import open_backend
from kernelllm.core.types import DEFAULT_BACKEND

if TYPE_CHECKING:
    import torch


def interpreted() -> bool:
    """Whether kernels run here without a device: ``TRITON_INTERPRET=1`` was set."""
    return open_backend(DEFAULT_BACKEND).runs_here()


def on(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Kernels go to the current device's stream: that of their tensors."""
    if device.type != "cuda":
        return contextlib.nullcontext()
    import torch

    return contextlib.nullcontext() if device.index in (None, torch.cuda.current_device()) else torch.cuda.device(device)
