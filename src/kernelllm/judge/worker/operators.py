"""Operators of ``torch.library.custom_op`` where there is no GPU: the function that is registered for CUDA is the one that runs."""

from __future__ import annotations

from typing import Any

from torch._library.custom_ops import CustomOpDef

_register: Any = CustomOpDef.register_kernel


def install() -> None:
    """For good, in this process and its forks."""
    CustomOpDef.register_kernel = _for_cuda  # type: ignore[method-assign]


def _for_cuda(self: Any, device_types: Any, fn: Any = None, /) -> Any:
    """One for the CPU would not run on a GPU."""
    if device_types is not None:
        kinds = [device_types] if isinstance(device_types, str) else device_types
        device_types = ["cpu"] * ("cuda" in kinds)
    return _register(self, device_types, fn)
