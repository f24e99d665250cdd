"""Scalar arguments of a launch in the type that a compiled kernel gets: a Python float becomes 32 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as ti
from triton.runtime import jit

_convert = ti._implicit_cvt
_DECLARED = {"u1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "fp16", "bf16", "fp32", "fp64"}


def install() -> None:
    """Stand for Triton's conversion of arguments, those in tuples too."""
    ti._implicit_cvt = converted


def declared(annotation: Any) -> str:
    """The type that a parameter's annotation gives its number, as ``fp64``; empty where it gives none."""
    known = jit._normalize_ty(annotation)
    return known if known in _DECLARED else ""


def converted(value: Any, kind: str = "") -> Any:
    """An argument as a kernel's value; ``kind``: the type that its parameter declares."""
    if isinstance(value, bool | int | float):
        with np.errstate(over="ignore"):  # beyond float32 it is infinite
            if kind:
                return ti.interpreter_semantic.scalar_constant(value, tl.str_to_ty(kind, None))
            if isinstance(value, bool):  # of which Triton makes 32 bits, and then refuses them
                return tl.core.tensor(ti.TensorHandle(np.array([value]), tl.int1), tl.int1)
            if isinstance(value, float):
                return tl.core.tensor(ti.TensorHandle(np.array([value], dtype=np.float32), tl.float32), tl.float32)
    return _convert(value)
