"""Written kernels in this process: on the device of their tensors, and in Triton's interpreter for those who ask for it."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def interpreted() -> bool:
    """Whether ``TRITON_INTERPRET=1`` was set; the interpreter is then made to run what written files contain."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        return False
    from kernelllm.backends.triton.emulator import driver, interpreter

    driver.install("sm_90")
    interpreter.install()
    return True


def on(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Kernels go to the current device's stream: that of their tensors."""
    if device.type != "cuda":
        return contextlib.nullcontext()
    import torch

    return contextlib.nullcontext() if device.index in (None, torch.cuda.current_device()) else torch.cuda.device(device)
