"""Python's functions of numbers on symbolic sizes: ``int``, ``float``, ``max``, ``math.ceil`` and others."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from contextlib import ExitStack
from functools import reduce
from typing import Any

import sympy
import torch
from torch.fx.experimental import proxy_tensor
from torch.utils._sympy.functions import FloatPow, FloatTrueDiv, IntTrueDiv, OpaqueUnaryFn_log2, ToFloat

from kernelllm.compiler.capture.patching import patch

_EXACT = 2**20
"""Numbers in a formula of sizes that are no larger, above and below the line, leave its products exact."""


def _ratio(value: torch.SymFloat) -> tuple[Any, Any] | None:
    """Whole numbers of which ``value`` is the quotient, as ``5 * n`` and ``4 * m`` in ``1.25 * n / m``; None where it is rounded before."""
    expression = value.node.expr
    match expression:
        case IntTrueDiv(args=(size, divisor)):
            return (size, divisor) if divisor.is_positive else None
        case FloatTrueDiv(args=(above, below)):
            size, divisor = _exactly(above), _exactly(below)
        case _:
            size, divisor = _exactly(expression), (sympy.Integer(1), 1)
    if size is None or divisor is None or not (size[1] * divisor[0]).is_positive:
        return None
    return size[0] * divisor[1], size[1] * divisor[0]


def _exactly(expression: Any) -> tuple[Any, Any] | None:
    """A float expression as a quotient of whole numbers, where its own arithmetic is exact up to 2**53."""
    match expression:
        case ToFloat(args=(size,)):
            return size, sympy.Integer(1)
        case sympy.Mul(args=factors):
            parts = [_exactly(factor) for factor in factors]
            if any(part is None for part in parts):
                return None
            return sympy.Mul(*(p[0] for p in parts if p)), sympy.Mul(*(p[1] for p in parts if p))
    if not expression.is_number or not expression.is_finite:
        return None
    above, below = builtins.float(expression).as_integer_ratio()
    return (sympy.Integer(above), sympy.Integer(below)) if max(abs(above), below) <= _EXACT else None


def _quotient(value: torch.SymFloat, divided: Callable[[Any, Any], Any]) -> Any:
    """``divided`` of the whole numbers of which ``value`` is the quotient; None where it is none."""
    ratio = _ratio(value)
    if ratio is None:
        return None
    return divided(*(builtins.int(n) if n.is_number else value.node.shape_env.create_symintnode(n, hint=None) for n in ratio))


def _number(value: Any) -> Any:
    """``int(value)`` as a symbol where the value is one; None where it is not."""
    if isinstance(value, torch.SymInt):
        return value
    if isinstance(value, torch.SymFloat):
        ratio = _ratio(value)
        if ratio is not None and ratio[0].is_nonnegative:  # int() rounds towards zero
            return _quotient(value, lambda size, divisor: size // divisor)
        if value.node.expr.has(OpaqueUnaryFn_log2):
            return builtins.int(builtins.float(value))  # the last bit decides
        if any(not _is_square(root.args[0]) for root in value.node.expr.atoms(FloatPow) if root.args[1].is_number and root.args[1] == 0.5):
            for size in value.node.expr.free_symbols:  # no kernel computes with rounded roots
                builtins.int(value.node.shape_env.create_symintnode(size, hint=None))
            return builtins.int(builtins.float(value))
        return torch.sym_int(value)
    return None


def _is_square(expression: Any) -> bool:
    positive = {s: sympy.Dummy(positive=True, integer=True) for s in expression.free_symbols}
    root = sympy.sqrt(sympy.factor(expression.replace(ToFloat, lambda size: size).xreplace(positive)))
    return bool(root.is_integer)


class _IntMeta(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, builtins.int | torch.SymInt)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, builtins.int | torch.SymInt)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        kept = _number(args[0]) if len(args) == 1 and not kwargs else None
        if len(args) == 1 and isinstance(args[0], torch.Tensor) and not args[0].is_complex():
            return (args[0].to(torch.int64) if args[0].is_floating_point() else args[0]).item()
        return builtins.int(*args, **kwargs) if kept is None else kept

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is builtins.int or other is torch.SymInt

    def __hash__(cls) -> builtins.int:
        return hash(builtins.int)


class SymbolicInt(metaclass=_IntMeta):
    """Stands for ``int`` where code runs with symbols: accepts them in ``isinstance`` and keeps them in ``int(x)``."""


class _FloatMeta(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, builtins.float | torch.SymFloat)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, builtins.float | torch.SymFloat)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        value = args[0] if len(args) == 1 and not kwargs else None
        if isinstance(value, torch.Tensor) and not value.is_complex():
            return (value if value.is_floating_point() else value.to(torch.float64)).item()
        return torch.sym_float(value) if isinstance(value, torch.SymInt | torch.SymFloat) else builtins.float(*args, **kwargs)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is builtins.float or other is torch.SymFloat

    def __hash__(cls) -> builtins.int:
        return hash(builtins.float)


class SymbolicFloat(metaclass=_FloatMeta):
    """Stands for ``float`` where code runs with symbols: ``1.0 / float(head_dim)`` stays a formula."""


def rounded(value: Any, *digits: Any) -> Any:
    return value if isinstance(value, torch.SymInt) and not digits else builtins.round(value, *digits)


def larger(one: Any, other: Any) -> Any:
    """The larger of two sizes. Where it is 1 or more, in a form of its own: in torch's strides ``max(1, n)`` stands for n."""
    size = other if isinstance(one, builtins.int) and one == 1 else one if isinstance(other, builtins.int) and other == 1 else None
    if isinstance(size, torch.SymInt) and not all(factor.is_Symbol for factor in sympy.Mul.make_args(size.node.expr)):
        return torch.sym_max(size - 1, 0) + 1
    return torch.sym_max(one, other)


def extreme(pick: Callable[..., Any], symbolic: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """``max`` or ``min``, without a decision on which size it is."""

    def chosen(*args: Any, **kwargs: Any) -> Any:
        sizes = args[0] if len(args) == 1 and isinstance(args[0], list | tuple) else args
        if not kwargs and len(sizes) > 1 and any(isinstance(size, torch.SymInt | torch.SymFloat) for size in sizes):
            return reduce(symbolic, sizes)
        return pick(*args, **kwargs)

    return chosen


def function_of(symbolic: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        return symbolic(*args) if any(isinstance(a, torch.SymInt | torch.SymFloat) for a in args) else plain(*args, **kwargs)

    return function


def floor(value: Any) -> Any:
    if isinstance(value, torch.SymInt):
        return value
    whole = _quotient(value, lambda size, divisor: size // divisor)
    if whole is None and value.node.expr.has(OpaqueUnaryFn_log2):
        return math.floor(builtins.float(value))  # the last bit decides
    return torch.SymInt(value.node.floor()) if whole is None else whole


def ceil(value: Any) -> Any:
    if isinstance(value, torch.SymInt):
        return value
    whole = _quotient(value, lambda size, divisor: (size + divisor - 1) // divisor)
    if whole is None and value.node.expr.has(OpaqueUnaryFn_log2):
        return math.ceil(builtins.float(value))  # the last bit decides
    return -torch.SymInt((-value).node.floor()) if whole is None else whole


def log2(value: Any) -> Any:
    return torch._sym_log2(torch.sym_float(value))  # type: ignore[attr-defined]


def log(value: Any, base: Any = math.e) -> Any:
    if base != math.e:
        return math.log(pinned(value), pinned(base))
    return log2(value) * math.log(2)


def pinned(value: Any) -> Any:
    """The value of a symbol as a number, which the graph then depends on."""
    return builtins.int(value) if isinstance(value, torch.SymInt) else builtins.float(value)


def keep_long_products(stack: ExitStack) -> None:
    """Until ``stack`` closes, products and sums of several sizes of the constructor can be traced: torch multiplies two at a time, and
    has an error where a size is made of three that it has not seen multiplied."""
    plain = proxy_tensor._build_proxy_for_sym_expr

    def built(tracer: Any, expr: Any, out: Any = None) -> Any:
        binary = {sympy.Mul: operator.mul, sympy.Add: operator.add}.get(getattr(expr, "func", None))
        if binary is None or len(expr.args) < 3 or tracer.sympy_expr_tracker.get(expr) is not None:
            return plain(tracer, expr, out)
        parts = [built(tracer, part) for part in (expr.func(*expr.args[:-1]), expr.args[-1])]
        if None in parts:
            return None
        if out is None:
            return binary(*parts)
        proxy_tensor._sym_register(tracer, binary, tuple(parts), out)
        return out

    patch(stack, proxy_tensor, "_build_proxy_for_sym_expr", built)
