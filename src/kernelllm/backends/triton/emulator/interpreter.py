"""Triton's interpreter, made to run what real kernels contain.

Installed once in the forkserver. Triton's own interpreter lacks libdevice, autotuning, correct bfloat16 arithmetic and
TF32 rounding, is slow on custom reductions, and reads any address it is handed; all of that is supplied here.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter as ti

from kernelllm.backends.triton.emulator import (
    bfloat16,
    compiled_syntax,
    compiler_hints,
    functions,
    libdevice,
    lockstep,
    memory,
    races,
    reductions,
    scalar_arguments,
    tf32,
    unloaded_lanes,
)
from kernelllm.backends.triton.emulator.bfloat16 import bf16_to_f32, f32_to_bf16

BF16 = tl.bfloat16
_FLOAT_OPS = (
    "create_fadd", "create_fmul", "create_fdiv", "create_frem", "create_fsub", "create_precise_divf", "create_minimumf", "create_minnumf",
    "create_maximumf", "create_maxnumf", "create_fcmpOLT", "create_fcmpOGT", "create_fcmpOLE", "create_fcmpOGE", "create_fcmpOEQ",
    "create_fcmpONE", "create_fcmpULT", "create_fcmpUGT", "create_fcmpULE", "create_fcmpUGE", "create_fcmpUEQ", "create_fcmpUNE",
    "create_clampf", "create_fma", "create_cos", "create_exp", "create_exp2", "create_floor", "create_ceil", "create_log", "create_log2",
    "create_precise_sqrt", "create_sqrt", "create_sin", "create_erf", "create_rsqrt",
)  # fmt: skip
_USUAL = ("sum", "max", "min", "zeros", "cdiv", "sigmoid")
"""Jitted functions of the language that many kernels call."""


def to_tf32(data: Any) -> Any:
    """float32 rounded to TF32's 10 mantissa bits (nearest even), as tensor cores see it."""
    bits = np.ascontiguousarray(data, dtype=np.float32).view(np.uint32)
    rounded = ((bits + np.uint32(0xFFF) + ((bits >> 13) & 1)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(data), rounded.reshape(np.shape(data)), data)


@functools.cache
def install() -> None:
    """Patch the interpreter of this process for good: once, as each patch calls what was there before. Live modules ask again and again."""
    from kernelllm.backends.triton.emulator import emulated_launches

    builder = ti.InterpreterBuilder
    builder.create_maxnumf, builder.create_minnumf = _nan_dropped(np.fmax, np.maximum), _nan_dropped(np.fmin, np.minimum)
    builder.create_clampf = _clamp
    builder.get_all_ones_value = _all_ones
    for name in _FLOAT_OPS:
        if hasattr(builder, name):
            setattr(builder, name, functions.counted(_in_float32(getattr(builder, name))))
    _patch_casts(builder)
    builder.create_dot = _dot
    erf = _in_float32(lambda self, arg: ti.TensorHandle(libdevice.apply(torch.erf, arg.data), arg.dtype.scalar))
    builder.create_erf = functions.counted(erf)
    builder.create_extern_elementwise = functions.counted(libdevice.create_extern_elementwise)
    builder.create_inline_asm_elementwise = _inline_asm
    builder.create_inline_asm = _inline_asm
    builder.get_bf16 = lambda self, value: ti.TensorHandle(f32_to_bf16(np.array([value], dtype=np.float32)), BF16)
    builder.create_barrier = lambda self: races.meets()
    builder.create_print = lambda *args: None
    builder.create_assert = _device_assert
    lockstep.join(builder)
    bfloat16.install(builder)
    memory.install(builder)
    libdevice.install()
    reductions.install()
    ti.ReduceOps.sum = _sum
    _patch_language_once()
    compiled_syntax.install()
    compiler_hints.install(builder)
    _remember_types()
    for module in (tl, tl.standard):
        module.sort = _sort
    # a kernel's own assertions hold; those on overflow would compute everything twice
    ti.interpreter_builder.options = dataclasses.replace(ti.interpreter_builder.options, debug=True, sanitize_overflow=False)
    lockstep.install()
    emulated_launches.install()
    for name in _USUAL:  # in the forkserver, once for all workers
        functions.interpreted(getattr(tl.standard, name).fn)


def _nan_dropped(dropping: Any, keeping: Any) -> Callable[..., Any]:
    """The larger or smaller of two, which is the number where one is NaN. Lanes that a load left undefined are told by their NaN: where
    they hold it, it is kept."""
    return lambda self, lhs, rhs: self.binary_op(lhs, rhs, keeping if unloaded_lanes.UnloadedLanes.kept is None else dropping)


def _all_ones(self: Any, kind: Any) -> Any:
    """What ``~x`` flips the bits of x with. Triton's interpreter makes it of -1, which NumPy refuses for unsigned types."""
    of_numpy = np.dtype(ti._get_np_dtype(kind))
    value = np.iinfo(of_numpy).max if of_numpy.kind == "u" else -1
    return ti.TensorHandle(np.full(1, value).astype(of_numpy), kind.scalar)


def _clamp(self: Any, arg: Any, low: Any, high: Any, propagate_nan: Any) -> Any:
    keeps = unloaded_lanes.UnloadedLanes.kept is None or propagate_nan is tl.PropagateNan.ALL
    return self.ternary_op(arg, low, high, np.clip if keeps else lambda x, a, b: np.fmin(np.fmax(x, a), b))


def _in_float32(original: Callable[..., Any]) -> Callable[..., Any]:
    """bfloat16 lives as uint16 bits in NumPy: compute in float32 and round back, as the hardware does."""

    def operation(self: Any, *args: Any) -> Any:
        if not any(isinstance(a, ti.TensorHandle) and a.dtype.scalar is BF16 for a in args):
            return original(self, *args)
        wide = [
            ti.TensorHandle(bf16_to_f32(a.data), tl.float32) if isinstance(a, ti.TensorHandle) and a.dtype.scalar is BF16 else a
            for a in args
        ]
        result = original(self, *wide)
        if result.data.dtype == np.float32:
            return ti.TensorHandle(f32_to_bf16(result.data), BF16)
        return ti.TensorHandle(result.data, BF16)

    return operation


_FLOAT8 = {tl.float8e4nv: torch.float8_e4m3fn, tl.float8e5: torch.float8_e5m2}


def _by_torch(builder: Any, src: Any, dst_type: Any) -> Any:
    """From or to float8, as a GPU does it: rounded to the nearest, to the largest number beyond it. Triton's interpreter loses carries."""
    source, target = src.dtype.scalar, dst_type.scalar
    if source in _FLOAT8:
        data = torch.from_numpy(np.ascontiguousarray(src.data)).view(_FLOAT8[source]).float().numpy()
    else:
        data = bf16_to_f32(src.data) if source is BF16 else src.data.astype(np.float32)
    if target not in _FLOAT8:
        return builder.cast_impl(ti.TensorHandle(data.reshape(src.data.shape), tl.float32), dst_type)
    kind = _FLOAT8[target]
    most = torch.finfo(kind).max
    rounded = torch.from_numpy(np.ascontiguousarray(np.clip(data, -most, most))).to(kind).view(torch.uint8).numpy()
    return ti.TensorHandle(rounded.reshape(src.data.shape), target)


def _patch_casts(builder: Any) -> None:
    cast, convert = builder.cast_impl, builder.create_fp_to_fp

    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        source, target = src.dtype.scalar, dst_type.scalar
        if source is BF16 and target is not BF16:
            src = ti.TensorHandle(bf16_to_f32(src.data), tl.float32)
            return src if target is tl.float32 else cast_impl(self, src, dst_type)
        if target is BF16 and source is not BF16:
            data = src.data.astype(np.float32) if source.is_int() or source.primitive_bitwidth in (16, 32, 64) else None
            if data is None:
                return convert(self, src, dst_type, None)
            return ti.TensorHandle(f32_to_bf16(data), BF16)
        return cast(self, src, dst_type)

    def create_fp_to_fp(self: Any, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        pair = {src.dtype.scalar, dst_type.scalar}
        toward_zero = rounding_mode is not None and "RTZ" in str(rounding_mode)
        if pair & _FLOAT8.keys() and not toward_zero:
            return _by_torch(self, src, dst_type)
        if pair <= {BF16, tl.float32, tl.float16, tl.float64} and not toward_zero:
            return cast_impl(self, src, dst_type)
        return convert(self, src, dst_type, rounding_mode)

    builder.cast_impl = cast_impl
    builder.create_fp_to_fp = create_fp_to_fp


def _dot(self: Any, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
    """tl.dot: operands rounded as the tensor core sees them, accumulated in the accumulator's type."""
    races.meets()
    left, right = _dot_operand(a, input_precision), _dot_operand(b, input_precision)
    accumulator = bf16_to_f32(d.data) if d.dtype.scalar is BF16 else d.data
    if accumulator.dtype == np.float16:
        total = np.matmul(left, right) + accumulator.astype(np.float32)
        functions.Arithmetic.flops += 2 * total.size * left.shape[-1]
        return ti.TensorHandle(total.astype(np.float16), d.dtype.scalar)
    total = np.matmul(left, right, dtype=accumulator.dtype) + accumulator
    functions.Arithmetic.flops += 2 * total.size * left.shape[-1]
    return ti.TensorHandle(f32_to_bf16(total) if d.dtype.scalar is BF16 else total, d.dtype.scalar)


def _dot_operand(handle: Any, precision: Any) -> Any:
    kind = handle.dtype.scalar
    if kind is BF16:
        return bf16_to_f32(handle.data)
    if kind.is_floating() and kind.primitive_bitwidth == 8:
        return ti._convert_float(handle.data, kind, tl.float16, None).view(np.float16).astype(np.float32)
    if kind is tl.float16:
        return handle.data.astype(np.float32)
    # one TF32 product unless the kernel asks for more; "bf16x3", "bf16x6" and "tf32x3" are nearly exact
    if tf32.Tf32.rounds and kind is tl.float32 and str(precision).rsplit(".", 1)[-1].upper() == "TF32":
        return to_tf32(handle.data)
    return handle.data


def _inline_asm(self: Any, *args: Any) -> Any:
    raise NotImplementedError("inline assembly cannot be interpreted without a GPU; judge this candidate with --device cuda.")


def _device_assert(self: Any, condition: Any, message: Any, *rest: Any) -> None:
    if not np.all(condition.data if hasattr(condition, "data") else condition):
        raise AssertionError(f"device assert failed: {message}")


def _sum(self: Any, input: Any) -> Any:
    data = input.handle.data
    functions.Arithmetic.flops += data.size if input.dtype.is_floating() else 0
    if input.dtype is BF16:
        total = f32_to_bf16(np.sum(bf16_to_f32(data), axis=self.axis, keepdims=self.keep_dims))
        return self.to_tensor(total[()], input.dtype)  # [()]: a sum over everything is a scalar, not a block of no dimensions
    return self.to_tensor(np.sum(data, axis=self.axis, keepdims=self.keep_dims, dtype=data.dtype), input.dtype)


def _remember_types() -> None:
    """Types are immutable and made anew at every operation, a third of the interpreter's time: keep them."""
    block, tensor, numpy_type = tl.core.block_type, tl.core.tensor, ti._get_np_dtype
    make_block = block.__init__
    blocks: dict[Any, dict[str, Any]] = {}
    numpy_types: dict[str, Any] = {}
    of_scalar = tl.core.tuple([]), tl.constexpr(1)

    def block_init(self: Any, element_ty: Any, shape: Any) -> None:
        key = (getattr(element_ty, "name", element_ty), tuple([getattr(s, "value", s) for s in shape]))
        known = blocks.get(key)
        if known is None:
            make_block(self, element_ty, shape)
            self.seen_as = tl.core.tuple([tl.constexpr(s) for s in key[1]]), tl.constexpr(math.prod(key[1]))
            blocks[key] = dict(self.__dict__)
        else:
            self.__dict__.update(known)

    def tensor_init(self: Any, handle: Any, type: Any) -> None:
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = type.seen_as if isinstance(type, block) else of_scalar

    def get_np_dtype(kind: Any) -> Any:
        known = numpy_types.get(kind.name)
        if known is None:
            known = numpy_types[kind.name] = numpy_type(kind)
        return known

    unwrap = tl.core._unwrap_if_constexpr
    plain = {int, float, bool, str, type(None), tensor, block, tl.core.dtype, tl.core.pointer_type}

    def unwrap_if_constexpr(value: Any) -> Any:
        kind = type(value)
        return value.value if kind is tl.constexpr else value if kind in plain else unwrap(value)

    tl.core._unwrap_if_constexpr = unwrap_if_constexpr
    semantic = type(ti.interpreter_semantic)
    same_shape = semantic.broadcast_impl_value

    def broadcast_impl_value(self: Any, lhs: Any, rhs: Any) -> Any:
        left, right = getattr(lhs.type, "shape", None), getattr(rhs.type, "shape", None)  # no scalar has a shape
        if left is right:
            return lhs, rhs
        if right is None:
            return lhs, splat(self, rhs, lhs.type)
        return (splat(self, lhs, rhs.type), rhs) if left is None else same_shape(self, lhs, rhs)

    def splat(self: Any, scalar: Any, like: Any) -> Any:
        kind = like if like.element_ty.name == scalar.dtype.name else block(scalar.dtype, like.shape)
        return tensor(self.builder.create_splat(kind, scalar.handle), kind)

    semantic.broadcast_impl_value = broadcast_impl_value
    semantic.binary_op_type_checking_impl = _quick_operands(semantic.binary_op_type_checking_impl)
    block.__init__, tensor.__init__, ti._get_np_dtype = block_init, tensor_init, get_np_dtype


_UNCHANGED = frozenset({"fp32", "fp64", "int32", "int64"})
"""Types that an operation on two of them, or on one and a number of its kind, computes in."""


def _quick_operands(checked: Any) -> Any:
    """What a binary operation computes on. The usual operands, equal in type, need none of the checks that take a third of the time."""
    tensor = tl.core.tensor

    def binary_op_type_checking_impl(self: Any, lhs: Any, rhs: Any, *flags: Any, **named: Any) -> Any:
        if type(lhs) is tensor and (kind := lhs.dtype.name) in _UNCHANGED:
            if type(rhs) is tensor:
                if rhs.dtype.name == kind:
                    return self.broadcast_impl_value(lhs, rhs)
            elif (type(rhs) is int and -(2**31) <= rhs < 2**31) or (type(rhs) is float and kind[0] == "f"):
                return self.broadcast_impl_value(lhs, self.scalar_constant(rhs, lhs.dtype))
        return checked(self, lhs, rhs, *flags, **named)

    return binary_op_type_checking_impl


def _sort(x: Any, dim: Any = None, descending: Any = False) -> Any:
    """tl.sort along the last dimension (Triton's own network of swaps takes a millisecond a stage here)."""
    if dim is not None and getattr(dim, "value", dim) not in (-1, len(x.shape) - 1):
        raise ValueError("only minor dimension is currently supported")
    data = x.handle.data
    order = np.argsort(bf16_to_f32(data) if x.dtype is BF16 else data, axis=-1, kind="stable")
    result = np.take_along_axis(data, order, axis=-1)
    if getattr(descending, "value", descending):
        result = np.ascontiguousarray(result[..., ::-1])
    return tl.core.tensor(ti.TensorHandle(result, x.dtype), x.type)


def _patch_language_once() -> None:
    """Triton swaps all of ``tl`` at every launch and every call of a device function (milliseconds each); here it is swapped for good."""

    def anchor() -> None:
        """Carries the globals that the patch looks at."""

    names = {"tl": tl, "core": tl.core}
    scope_function = types.FunctionType(anchor.__code__, names)
    ti._patch_lang(scope_function)
    scope = type("NoScope", (), {"restore": lambda self: None, "set_attr": lambda self, *a: None})()
    ti._patch_lang = lambda fn: scope
    functions.install()
    # Triton 3.6 converts arrays of one element with int(), which NumPy 2.4 refuses
    triton.language.core.tensor.__index__ = lambda self: int(self.handle.data.reshape(-1)[0])
    triton.language.core.tensor.__bool__ = _truth
    scalar_arguments.install()


def _truth(self: Any) -> bool:
    data = self.handle.data
    return bool(data.reshape(-1)[0]) if data.size == 1 else True
