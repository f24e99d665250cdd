"""Floor division as eager computes it: of floating-point numbers by the remainder, as Python does, and of the smallest whole number too.

Inductor rounds the quotient before it takes the floor: ``42 // -0.7`` is -60 then, and -61 in eager. Where it divides by a negative whole
number, it turns the signs of both: the smallest number of a type has no opposite in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

aten = torch.ops.aten
_HALF = (torch.float16, torch.bfloat16)
_SHORTER = (torch.int8, torch.int16, torch.int32)


def floored(a: Any, b: Any) -> Any:
    """``floor(a / b)``, tensors or one of them a number, as ``c10::div_floor_floating``; NotImplemented for
    integers of which Inductor knows."""
    if isinstance(b, torch.Tensor) and b.is_floating_point() and not isinstance(a, torch.Tensor):
        a = torch.full((), a, dtype=b.dtype, device=b.device)
    if not isinstance(a, torch.Tensor) or (isinstance(b, int | float) and b == 0):
        return NotImplemented
    is_size = isinstance(b, torch.SymInt | torch.SymFloat)
    if is_size:
        if not a.is_floating_point() or not statically_known_true(b > 0):
            return NotImplemented
        b = torch.full((), b, dtype=a.dtype, device=a.device)
    dtype = torch.result_type(a, b)
    if not dtype.is_floating_point:
        negative = isinstance(b, torch.Tensor) or (isinstance(b, int) and b < 0)
        return torch.div(a.long(), b, rounding_mode="floor").to(dtype) if dtype in _SHORTER and negative else NotImplemented
    wide = torch.float32 if dtype in _HALF else dtype
    a, b = a.to(wide), b.to(wide) if isinstance(b, torch.Tensor) else float(b)
    rest = torch.fmod(a, b)
    quotient = (a - rest) / b
    signed = torch.where(b < 0, -rest, rest) if isinstance(b, torch.Tensor) and not is_size else rest if is_size or b > 0 else -rest
    quotient = torch.where(signed < 0, quotient - 1, quotient)
    whole = torch.floor(quotient)
    whole = torch.where(quotient - whole > 0.5, whole + 1, whole)
    if isinstance(b, torch.Tensor) and not is_size:
        whole = torch.where(b == 0, a / b, whole)
    return whole.to(dtype)


def _by_mode(a: Any, b: Any, *, rounding_mode: str | None) -> Any:
    return floored(a, b) if rounding_mode == "floor" else NotImplemented


def _floor_divide(a: Any, b: Any) -> Any:
    made = floored(a, b)
    return torch.div(a, b, rounding_mode="floor") if made is NotImplemented else made


def rules() -> dict[Any, Callable[..., Any]]:
    """Decompositions for a trace."""
    by_mode = dict.fromkeys((aten.div.Tensor_mode, aten.div.Scalar_mode), _by_mode)
    return {**by_mode, **dict.fromkeys((aten.floor_divide.default, aten.floor_divide.Scalar), _floor_divide)}


__all__ = ["rules"]
