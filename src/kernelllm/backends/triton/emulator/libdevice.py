"""CUDA's libdevice for the interpreter: ``__nv_*`` symbols as torch functions on the CPU."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter as ti

from kernelllm.backends.triton.emulator import libdevice_bits


def apply(function: Callable[..., Any], *arrays: Any) -> Any:
    """A torch function on NumPy arrays."""
    tensors = [torch.from_numpy(np.array(a, copy=True, order="C")) for a in arrays]
    return function(*tensors).numpy()


def _sign_bit(x: torch.Tensor) -> torch.Tensor:
    return torch.signbit(x).to(torch.int32)


def _rounded(mode: Callable[[torch.Tensor], torch.Tensor], kind: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: mode(x).to(kind)


def _popc(x: torch.Tensor) -> torch.Tensor:
    bits = x.numel() and x.element_size() * 8
    return sum((((x >> i) & 1).to(torch.int32) for i in range(bits)), torch.zeros_like(x, dtype=torch.int32))


def _clz(x: torch.Tensor) -> torch.Tensor:
    width = x.element_size() * 8
    count = torch.full_like(x, width, dtype=torch.int32)
    for i in range(width):
        count = torch.where(((x >> i) & 1) == 1, torch.tensor(width - 1 - i, dtype=torch.int32), count)
    return count


def _remquo(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x - torch.round(x / y) * y


def _fma(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    return (x.double() * y.double() + z.double()).to(x.dtype)


def _tgamma(x: torch.Tensor) -> torch.Tensor:
    wide = x.double()
    size = torch.exp(torch.lgamma(wide))
    whole = torch.floor(wide)
    signed = torch.where((wide < 0) & (torch.remainder(whole, 2) == 1), -size, size)
    signed = torch.where(((wide < 0) & (whole == wide)) | torch.isneginf(wide), torch.full_like(size, math.nan), signed)
    return torch.where(wide == 0, 1 / wide, signed).to(x.dtype)


def _jn(n: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The mean of cos(n t - x sin t) over a circle, which converges at once where there are more points than its waves."""
    wide, order = torch.broadcast_tensors(x.double(), n.double())
    points = min(4096, 64 + 2 * int(torch.nan_to_num(wide.abs() + order.abs(), posinf=0).max()))
    total = torch.zeros_like(wide)
    for step in range(points):
        angle = 2 * math.pi * step / points
        total += torch.cos(order * angle - wide * math.sin(angle))
    return torch.where(order < 0, torch.full_like(total, math.nan), total / points).to(x.dtype)


def _yn(n: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    wide, order = torch.broadcast_tensors(x.double(), n)
    before, now = torch.special.bessel_y0(wide), torch.special.bessel_y1(wide)
    result = torch.where(order == 0, before, torch.where(order == 1, now, torch.full_like(wide, math.nan)))
    for k in range(1, min(int(order.max()), 4096)):
        before, now = now, 2 * k / wide * now - before
        now = torch.where(torch.isnan(now) & (wide > 0), torch.full_like(now, -math.inf), now)
        result = torch.where(order == k + 1, now, result)
    return result.to(x.dtype)


def _toward(mode: str, function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A function of float32 rounded as its name says (of float64, to the nearest)."""

    def rounded(*arguments: torch.Tensor) -> torch.Tensor:
        if arguments[0].dtype != torch.float32:
            return function(*arguments)
        exact = function(*[a.double() for a in arguments])
        near = exact.float()
        low = torch.where(near > exact, torch.nextafter(near, torch.full_like(near, -math.inf)), near)
        high = torch.where(near < exact, torch.nextafter(near, torch.full_like(near, math.inf)), near)
        return {"rn": near, "rd": low, "ru": high, "rz": torch.where(exact > 0, low, high)}[mode]

    return rounded


_PI = math.pi
_t = torch
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": _t.abs, "fabs": _t.abs, "llabs": _t.abs, "exp": _t.exp, "exp2": _t.exp2, "expm1": _t.expm1, "exp10": lambda x: _t.pow(10.0, x),
    "fast_exp": _t.exp, "fast_exp10": lambda x: _t.pow(10.0, x), "log": _t.log, "log2": _t.log2, "log10": _t.log10, "log1p": _t.log1p,
    "fast_log": _t.log, "fast_log2": _t.log2, "fast_log10": _t.log10, "logb": lambda x: _t.floor(_t.log2(_t.abs(x))),
    "sin": _t.sin, "cos": _t.cos, "tan": _t.tan, "fast_sin": _t.sin, "fast_cos": _t.cos, "fast_tan": _t.tan, "asin": _t.asin,
    "acos": _t.acos,
    "atan": _t.atan, "atan2": _t.atan2, "sinh": _t.sinh, "cosh": _t.cosh, "tanh": _t.tanh, "fast_tanh": _t.tanh, "asinh": _t.asinh,
    "acosh": _t.acosh, "atanh": _t.atanh, "sinpi": lambda x: _t.sin(x * _PI), "cospi": lambda x: _t.cos(x * _PI),
    "sqrt": _t.sqrt, "rsqrt": _t.rsqrt, "cbrt": lambda x: _t.sign(x) * _t.abs(x) ** (1 / 3),
    "rcbrt": lambda x: _t.sign(x) * _t.abs(x) ** (-1 / 3),
    "rcp": _t.reciprocal, "rcp64h": lambda x: (_t.reciprocal(x).view(_t.int64) >> 32 << 32).view(_t.float64),
    "pow": _t.pow, "powi": _t.pow, "fast_pow": _t.pow, "hypot": _t.hypot, "rhypot": lambda x, y: 1 / _t.hypot(x, y),
    "norm3d": lambda x, y, z: (x * x + y * y + z * z).sqrt(), "rnorm3d": lambda x, y, z: (x * x + y * y + z * z).rsqrt(),
    "norm4d": lambda *v: sum(x * x for x in v).sqrt(), "rnorm4d": lambda *v: sum(x * x for x in v).rsqrt(),
    "erf": _t.erf, "erfc": _t.erfc, "erfinv": _t.erfinv, "erfcinv": lambda x: _t.erfinv(1 - x), "erfcx": _t.special.erfcx,
    "normcdf": _t.special.ndtr, "normcdfinv": _t.special.ndtri, "lgamma": _t.lgamma, "tgamma": _tgamma, "jn": _jn, "yn": _yn,
    "j0": _t.special.bessel_j0, "j1": _t.special.bessel_j1, "y0": _t.special.bessel_y0, "y1": _t.special.bessel_y1,
    "cyl_bessel_i0": _t.special.i0, "cyl_bessel_i1": _t.special.i1,
    "floor": _t.floor, "ceil": _t.ceil, "trunc": _t.trunc, "rint": _t.round, "nearbyint": _t.round,
    "round": lambda x: _t.trunc(x + _t.copysign(_t.full_like(x, 0.5), x)),
    "llrint": _rounded(_t.round, _t.int64), "llround": lambda x: _t.trunc(x + _t.copysign(_t.full_like(x, 0.5), x)).to(_t.int64),
    "fmod": _t.fmod, "remainder": _remquo, "fdim": lambda x, y: _t.clamp(x - y, min=0), "fmin": _t.fmin, "fmax": _t.fmax,
    "min": _t.minimum, "max": _t.maximum, "umin": _t.minimum, "umax": _t.maximum, "llmin": _t.minimum, "llmax": _t.maximum,
    "copysign": _t.copysign, "nextafter": _t.nextafter, "ldexp": lambda x, n: _t.ldexp(x, n), "scalbn": lambda x, n: _t.ldexp(x, n),
    "ilogb": lambda x: _t.floor(_t.log2(_t.abs(x))).to(_t.int32), "saturate": lambda x: _t.clamp(x, 0, 1),
    "fma": _fma, "fast_fdivide": _t.div, "fdividef": _t.div, "fast_div": _t.div,
    "isnan": lambda x: _t.isnan(x).to(_t.int32), "isnand": lambda x: _t.isnan(x).to(_t.int32), "isinf": lambda x: _t.isinf(x).to(_t.int32),
    "isinfd": lambda x: _t.isinf(x).to(_t.int32), "finite": lambda x: _t.isfinite(x).to(_t.int32),
    "isfinited": lambda x: _t.isfinite(x).to(_t.int32), "signbit": _sign_bit, "signbitd": _sign_bit,
    "popc": _popc, "popcll": _popc, "clz": _clz, "clzll": _clz,
}  # fmt: skip
_ROUNDED: dict[str, Callable[..., torch.Tensor]] = {
    "add": _t.add, "sub": _t.sub, "mul": _t.mul, "div": _t.div, "fma": _fma, "sqrt": _t.sqrt, "rcp": _t.reciprocal, "rsqrt": _t.rsqrt,
}  # fmt: skip
for _op, _function in _ROUNDED.items():
    for _round in ("rn", "rz", "rd", "ru"):
        FUNCTIONS[f"{_op}_{_round}"] = _toward(_round, _function)


def find(symbol: str) -> Callable[..., Any] | None:
    """The function of a symbol such as ``__nv_tanhf``, None when there is none."""
    name = symbol.removeprefix("__nv_")
    # __nv_sqrtf, __nv_fmaf_rn, __nv_fsqrt_rn and __nv_dsqrt_rn
    for candidate in (name, name.removesuffix("f"), name.removesuffix("d"), name.replace("f_r", "_r"), name[1:] if "_r" in name else name):
        if candidate in FUNCTIONS:
            return FUNCTIONS[candidate]
    return None


def create_extern_elementwise(self: Any, lib_name: str, lib_path: str, symbol: str, arguments: Any, result_type: Any, is_pure: bool) -> Any:
    """The builder's door for ``tl.core.extern_elementwise``."""
    kind = ti._get_np_dtype(result_type.scalar)
    if bits := libdevice_bits.find(symbol):
        return ti.TensorHandle(bits(*[a.data for a in arguments]).astype(kind), result_type.scalar)
    function = find(symbol)
    if function is None:
        raise NotImplementedError(f"{symbol} cannot be interpreted without a GPU; judge this candidate with --device cuda.")
    unsigned = [a.data.view(f"i{a.data.dtype.itemsize}") if a.data.dtype.kind == "u" else a.data for a in arguments]
    data = np.asarray(apply(function, *unsigned))
    if data.dtype.kind == "i" and kind.kind == "u" and data.dtype.itemsize == kind.itemsize:
        data = data.view(kind)
    return ti.TensorHandle(data.astype(kind), result_type.scalar)


def install() -> None:
    """Bind every function of Triton's libdevice modules to the interpreter."""
    import triton.language.extra.cuda.libdevice as cuda
    import triton.language.extra.libdevice as generic

    for name, member in inspect.getmembers(cuda, inspect.isfunction):
        if name.startswith("_") or member.__module__ != cuda.__name__:
            continue
        bound = _bound(member)
        setattr(cuda, name, bound)
        setattr(generic, name, bound)


def _bound(member: Callable[..., Any]) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("_semantic", None)
        args = tuple(ti.interpreter_semantic.to_tensor(a) if isinstance(a, int | float) else a for a in args)
        args = tuple(_narrowed(a) for a in args)
        return member(*args, _semantic=ti.interpreter_semantic, **kwargs)

    function.__name__ = member.__name__
    return function


def _narrowed(value: Any) -> Any:
    """libdevice has no half-precision functions: Triton rejects them, and so does this."""
    if isinstance(value, tl.core.tensor) and value.dtype.scalar in (tl.float16, tl.bfloat16):
        raise TypeError(f"libdevice takes float32 or float64, not {value.dtype.scalar}; convert with .to(tl.float32).")
    return value
