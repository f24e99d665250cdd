"""Runs a module in float64, whatever dtypes it converts to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from kernelllm.problems.without_dynamo import OperatorMode

_CONVERSIONS = ("aten._to_copy.default", "prims.convert_element_type.default")
_SOFTMAX = ("aten._softmax.default", "aten._log_softmax.default")
_SOFTMAX_BACKWARD = ("aten._softmax_backward_data.default", "aten._log_softmax_backward_data.default")


@contextlib.contextmanager
def in_float64(*, conversions: bool) -> Iterator[None]:
    """New floating-point tensors are float64. Without ``conversions`` those of float64 to another floating-point type do nothing, and
    what names such a type itself is float64 too."""
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
        kwargs, name = dict(kwargs or {}), str(func)
        wide = bool(args) and isinstance(args[0], torch.Tensor) and args[0].dtype is torch.float64
        if name in _CONVERSIONS and wide:
            wanted = kwargs.get("dtype") or (args[1] if len(args) > 1 else None)
            if isinstance(wanted, torch.dtype) and wanted.is_floating_point:
                return args[0].clone()
        if getattr(kwargs.get("dtype"), "is_floating_point", False) and torch.Tag.nondeterministic_seeded not in func.tags:
            kwargs["dtype"] = torch.float64  # a constant, a sum; other random numbers would be drawn
        if name in _SOFTMAX and wide:
            args = (*args[:2], False)  # half_to_float
        if name in _SOFTMAX_BACKWARD and wide:
            args = (*args[:3], torch.float64)
        return func(*args, **kwargs)
