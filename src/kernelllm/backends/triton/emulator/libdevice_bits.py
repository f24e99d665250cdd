"""libdevice's integer functions, bit functions of floats, and conversions, on NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from triton.runtime import interpreter as ti


def _high(x: Any, y: Any) -> Any:
    """The upper half of a product of 32 bits each."""
    wide = np.int64 if x.dtype.kind == "i" else np.uint64
    return (x.astype(wide) * y.astype(wide) >> wide(32)).astype(x.dtype)


def _high64(x: Any, y: Any) -> Any:
    left, right = np.broadcast_arrays(np.ascontiguousarray(x), np.ascontiguousarray(y))
    a, b = left.astype(np.uint64), right.astype(np.uint64)
    high = np.asarray(ti.np_umulhi_u64(a, b), dtype=np.uint64)
    if x.dtype.kind == "i":
        high = high - np.where(left < 0, b, np.uint64(0)) - np.where(right < 0, a, np.uint64(0))
    return high.astype(x.dtype)


def _product24(x: Any, y: Any) -> Any:
    """The lower half of a product of 24 bits each."""
    a, b = ((v.astype(np.int32) << 8 >> 8) if v.dtype.kind == "i" else v & np.uint32(0xFFFFFF) for v in (x, y))
    return (a.astype(np.int64) * b.astype(np.int64)).astype(x.dtype)


def _reversed(x: Any) -> Any:
    octets = np.ascontiguousarray(x).view(np.uint8).reshape(*x.shape, x.dtype.itemsize)
    turned = np.packbits(np.unpackbits(octets, axis=-1)[..., ::-1], axis=-1)
    return np.ascontiguousarray(turned).view(x.dtype).reshape(x.shape)


def _chosen_bytes(x: Any, y: Any, places: Any) -> Any:
    both = x.astype(np.uint32).astype(np.uint64) | y.astype(np.uint32).astype(np.uint64) << np.uint64(32)
    result = np.zeros(np.broadcast_shapes(both.shape, places.shape), dtype=np.uint64)
    for at in range(4):
        place = (places.astype(np.uint32) >> np.uint32(4 * at)).astype(np.uint64) & np.uint64(7)
        result |= (both >> place * np.uint64(8) & np.uint64(0xFF)) << np.uint64(8 * at)
    return result.astype(np.uint32).astype(x.dtype)


def _mean(more: int) -> Callable[[Any, Any], Any]:
    return lambda x, y: (x.astype(np.int64) + y.astype(np.int64) + more >> 1).astype(x.dtype)


def _difference(x: Any, y: Any, z: Any) -> Any:
    return (np.abs(x.astype(np.int64) - y.astype(np.int64)) + z.astype(np.int64)).astype(x.dtype)


def _first_set(x: Any) -> Any:
    """The place of the lowest bit that is set, from 1; 0 where none is."""
    lowest = (x & -x).view(f"u{x.dtype.itemsize}")
    return np.frexp(lowest.astype(np.float64))[1].astype(np.int32)


def _seen_as(kind: Any) -> Callable[[Any], Any]:
    return lambda x: np.ascontiguousarray(x).view(kind).reshape(x.shape)


def _half_of_double(*, upper: bool) -> Callable[[Any], Any]:
    return lambda x: (_seen_as(np.int64)(x) >> (32 if upper else 0)).astype(np.uint32).view(np.int32)


def _double_of_halves(upper: Any, lower: Any) -> Any:
    whole = upper.astype(np.int64) << 32 | lower.astype(np.uint32).astype(np.int64)
    return _seen_as(np.float64)(whole)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "mulhi": _high, "umulhi": _high, "mul64hi": _high64, "umul64hi": _high64, "mul24": _product24, "umul24": _product24,
    "brev": _reversed, "brevll": _reversed, "byte_perm": _chosen_bytes, "ffs": _first_set, "ffsll": _first_set,
    "hadd": _mean(0), "uhadd": _mean(0), "rhadd": _mean(1), "urhadd": _mean(1), "sad": _difference, "usad": _difference,
    "float_as_int": _seen_as(np.int32), "float_as_uint": _seen_as(np.uint32), "int_as_float": _seen_as(np.float32),
    "uint_as_float": _seen_as(np.float32), "double_as_longlong": _seen_as(np.int64), "longlong_as_double": _seen_as(np.float64),
    "double2loint": _half_of_double(upper=False), "double2hiint": _half_of_double(upper=True), "hiloint2double": _double_of_halves,
}  # fmt: skip
_KINDS = {
    "float": np.float32, "double": np.float64, "int": np.int32, "uint": np.uint32, "ll": np.int64, "ull": np.uint64,
}  # fmt: skip
_ROUNDINGS: dict[str, Callable[..., Any]] = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}


def find(symbol: str) -> Callable[..., Any] | None:
    """The function of a symbol such as ``__nv_mulhi`` or ``__nv_float2int_rn``, None when there is none."""
    name = symbol.removeprefix("__nv_")
    kinds, _, mode = name.partition("_")
    source, _, target = kinds.partition("2")
    if name in FUNCTIONS or source not in _KINDS or target not in _KINDS or mode not in _ROUNDINGS:
        return FUNCTIONS.get(name)
    kind = np.dtype(_KINDS[target])
    return (lambda x: _float(x, kind, mode)) if kind.kind == "f" else (lambda x: _whole(_ROUNDINGS[mode](x), kind))


def _float(x: Any, kind: Any, mode: str) -> Any:
    near, exact = x.astype(kind), x.astype(np.float64)
    down = {"rn": False, "rd": True, "ru": False, "rz": exact > 0}[mode]
    up = {"rn": False, "rd": False, "ru": True, "rz": exact < 0}[mode]
    near = np.where((near > exact) & down, np.nextafter(near, kind.type(-np.inf)), near)
    return np.where((near < exact) & up, np.nextafter(near, kind.type(np.inf)), near)


def _whole(x: Any, kind: Any) -> Any:
    """What fits no number of the kind becomes the nearest that does."""
    limits = np.iinfo(kind)
    inside = np.where((x > limits.min) & (x < float(limits.max)), x, 0).astype(kind)
    return np.where(x >= float(limits.max), kind.type(limits.max), np.where(x <= limits.min, kind.type(limits.min), inside))
