"""Running a reference in float64, though it converts to types of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from kernelllm.problems.operator_mode import OperatorMode

_CONVERSIONS = ("aten._to_copy.default", "prims.convert_element_type.default")


@contextlib.contextmanager
def in_float64(*, conversions: bool) -> Iterator[None]:
    """New floating-point tensors are float64. Without ``conversions`` those of float64 to another floating-point type do nothing."""
    old = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with contextlib.nullcontext() if conversions else _KeepsFloat64():
            yield
    finally:
        torch.set_default_dtype(old)


class _KeepsFloat64(OperatorMode):
    """A module that sums in float32 and goes on in half precision multiplies float64 by half precision otherwise, which is an error."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if str(func) in _CONVERSIONS and args[0].dtype is torch.float64:
            wanted = kwargs.get("dtype") or (args[1] if len(args) > 1 else None)
            if isinstance(wanted, torch.dtype) and wanted.is_floating_point:
                return args[0].clone()
        return func(*args, **kwargs)
