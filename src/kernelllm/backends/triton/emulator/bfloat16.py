"""bfloat16 as Triton's interpreter stores it (in bits), and atomic additions of it, which the interpreter lacks."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton._C.libtriton import interpreter as native
from triton.runtime.interpreter import TensorHandle


def install(builder: Any) -> None:
    """Let the interpreter's builder add bfloat16."""
    others = builder.create_atomic_rmw

    def create_atomic_rmw(self: Any, op: Any, ptr: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        if value.dtype.scalar != tl.bfloat16 or "FADD" not in str(op):
            return others(self, op, ptr, value, mask, *rest, **named)
        return TensorHandle(added(ptr.data, value.data, mask.data), tl.bfloat16)

    builder.create_atomic_rmw = create_atomic_rmw


def added(addresses: np.ndarray[Any, Any], values: np.ndarray[Any, Any], mask: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Add bits of bfloat16 to those at the addresses, lane by lane, where the mask is set. Returns what each lane found there."""
    places, numbers, lanes = addresses.ravel(), values.ravel(), np.flatnonzero(np.broadcast_to(mask, addresses.shape).ravel())
    found = np.zeros(places.shape, np.uint16)
    while lanes.size:
        _, first = np.unique(places[lanes], return_index=True)
        turn = lanes[np.sort(first)]  # of lanes that add to one place, one at a time
        all_of_them = np.ones(turn.shape, bool)
        there = native.load(places[turn], all_of_them, np.zeros(turn.shape, np.uint16), np.dtype(np.uint16))
        native.store(places[turn], f32_to_bf16(bf16_to_f32(there) + bf16_to_f32(numbers[turn])), all_of_them)
        found[turn] = there
        lanes = np.setdiff1d(lanes, turn, assume_unique=True)
    return found.reshape(addresses.shape)


def bf16_to_f32(data: Any) -> Any:
    """uint16 bits to float32."""
    return (data.astype(np.uint32) << 16).view(np.float32)


def f32_to_bf16(data: Any) -> Any:
    """float32 to uint16 bits, rounding to nearest even; NaN stays NaN."""
    bits = np.ascontiguousarray(data, dtype=np.float32).view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    rounded = rounded.reshape(np.shape(data))  # a scalar came back as an array of one
    return np.where(np.isnan(data), np.uint16(0x7FC0), rounded)


__all__ = ["added", "bf16_to_f32", "f32_to_bf16", "install"]
