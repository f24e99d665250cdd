"""Functions of libdevice in the emulator beside what CUDA's manual says of them."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton.language.extra.cuda.libdevice as cuda

from kernelllm.backends.triton.emulator import libdevice, libdevice_bits

F, I32, U, L, UL = np.float32, np.int32, np.uint32, np.int64, np.uint64
CASES: dict[str, tuple[list[Any], Any]] = {
    "__nv_mulhi": ([I32([-5, 2**31 - 1]), I32([1000003, 4])], I32([-1, 1])),
    "__nv_umulhi": ([U([2**32 - 1]), U([2**32 - 1])], U([2**32 - 2])),
    "__nv_mul64hi": ([L([-1, 2**62]), L([3, -8])], L([-1, -2])),
    "__nv_umul64hi": ([UL([2**64 - 1]), UL([2**64 - 1])], UL([2**64 - 2])),
    "__nv_mul24": ([I32([-1, 1 << 24]), I32([5, 7])], I32([-5, 0])),
    "__nv_umul24": ([U([2**24 + 3]), U([2])], U([6])),
    "__nv_brev": ([I32([1, 2, -1])], I32([-(2**31), 2**30, -1])),
    "__nv_brevll": ([L([1])], L([-(2**63)])),
    "__nv_byte_perm": ([I32([0x33221100]), I32([0x77665544]), I32([0x0617])], I32([0x00661177])),
    "__nv_ffs": ([I32([0, 1, 8, -(2**31)])], I32([0, 1, 4, 32])),
    "__nv_ffsll": ([L([0, 2**40, -(2**63)])], I32([0, 41, 64])),
    "__nv_hadd": ([I32([2**31 - 1, -3]), I32([2**31 - 1, -4])], I32([2**31 - 1, -4])),
    "__nv_uhadd": ([U([2**32 - 1]), U([2**32 - 1])], U([2**32 - 1])),
    "__nv_urhadd": ([U([2]), U([3])], U([3])),
    "__nv_usad": ([U([2]), U([5]), U([7])], U([10])),
    "__nv_uint_as_float": ([U([0x40490FDB])], F([math.pi])),
    "__nv_hiloint2double": ([I32([0x400921FB]), I32([0x54442D18])], np.float64([math.pi])),
    "__nv_double2loint": ([np.float64([math.pi])], I32([0x54442D18])),
    "__nv_double2float_rn": ([np.float64([0.3])], F([0.3])),
    "__nv_double2float_ru": ([np.float64([1 + 2.0**-40, -1 - 2.0**-40])], F([1 + 2.0**-23, -1])),
    "__nv_float2int_rd": ([F([-1.5, 3e9])], I32([-2, 2**31 - 1])),
    "__nv_uint2float_rn": ([U([2**31])], F([2.0**31])),
    "__nv_fsqrt_rn": ([F([4.0, 2.0])], F([2.0, 2**0.5])),
    "__nv_frcp_rn": ([F([4.0])], F([0.25])),
    "__nv_frsqrt_rn": ([F([4.0])], F([0.5])),
    "__nv_drcp_ru": ([np.float64([4.0])], np.float64([0.25])),
    "__nv_fadd_rd": ([F([1.0]), F([-(2.0**-40)])], F([1 - 2.0**-24])),
    "__nv_fadd_ru": ([F([1.0]), F([2.0**-40])], F([1 + 2.0**-23])),
    "__nv_fmaf_rz": ([F([1 + 2.0**-23]), F([1 + 2.0**-23]), F([0.0])], F([1 + 2.0**-22])),
    "__nv_norm4df": ([F([1.0]), F([1.0]), F([1.0]), F([1.0])], F([2.0])),
    "__nv_tgammaf": ([F([5.0, 0.5, -0.5, -1.5])], F([24.0, math.pi**0.5, -2 * math.pi**0.5, 4 / 3 * math.pi**0.5])),
    "__nv_jn": ([I32([2, 5]), np.float64([3.0, 0.5])], np.float64([0.486091260585891, 8.053627241357474e-06])),
    "__nv_yn": ([I32([0, 3]), np.float64([1.0, 2.0])], np.float64([0.0882569642156769, -1.127783776840428])),
}


def value(symbol: str, arguments: list[Any]) -> Any:
    bits = libdevice_bits.find(symbol)
    return bits(*arguments) if bits else libdevice.apply(libdevice.find(symbol), *arguments)


for symbol, (arguments, wanted) in CASES.items():
    got = value(symbol, arguments)
    assert got.dtype == wanted.dtype, (symbol, got.dtype)
    exact = wanted.dtype.kind != "f" or "_r" in symbol
    assert np.array_equal(got, wanted) if exact else np.allclose(got, wanted, rtol=1e-6, atol=1e-12), (symbol, got, wanted)
assert torch.isnan(libdevice.find("__nv_tgammaf")(torch.tensor([-2.0, -math.inf]))).all()
symbols = set(re.findall(r'"(__nv_\w+)"', Path(cuda.__file__).read_text()))
missing = [s for s in symbols if libdevice_bits.find(s) is None and libdevice.find(s) is None]
assert not missing, missing
print("ran")  # noqa: T201
