"""Python's own functions of numbers, where the numbers are sizes that vary: ``int``, ``float``, ``max``, ``math.ceil`` and friends."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import sympy
import torch
from torch.utils._sympy.functions import FloatTrueDiv, IntTrueDiv, OpaqueUnaryFn_log2, ToFloat


def _quotient(value: torch.SymFloat, divided: Callable[[Any, Any], Any]) -> Any:
    """``divided`` of a size and the number of which ``value`` is the quotient, as ``n`` and 4 in ``n / 4``; None where it is none."""
    match value.node.expr:
        case IntTrueDiv(args=(size, divisor)) | FloatTrueDiv(args=(ToFloat(args=(size,)), ToFloat(args=(divisor,)))):
            pass
        case FloatTrueDiv(args=(ToFloat(args=(size,)), divisor)) if divisor.is_number and float(divisor).is_integer():
            divisor = sympy.Integer(builtins.int(divisor))
        case _:
            return None
    if not divisor.is_positive:
        return None
    return divided(*(builtins.int(n) if n.is_number else value.node.shape_env.create_symintnode(n, hint=None) for n in (size, divisor)))


def _number(value: Any) -> Any:
    """``int(value)`` as a symbol where the value is one; None where it is not."""
    if isinstance(value, torch.SymInt):
        return value
    if isinstance(value, torch.SymFloat):
        whole = _quotient(value, lambda size, divisor: size // divisor)
        if whole is not None and all(n.is_nonnegative for n in value.node.expr.args):  # int() rounds towards zero
            return whole
        if value.node.expr.has(OpaqueUnaryFn_log2):
            return builtins.int(builtins.float(value))  # the last bit decides
        return torch.sym_int(value)
    return None


class _IntMeta(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, builtins.int | torch.SymInt)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, builtins.int | torch.SymInt)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        kept = _number(args[0]) if len(args) == 1 and not kwargs else None
        if len(args) == 1 and isinstance(args[0], torch.Tensor) and not args[0].is_floating_point() and not args[0].is_complex():
            return args[0].item()
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
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return value.item()
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
    return _number(value) if whole is None else whole


def ceil(value: Any) -> Any:
    if isinstance(value, torch.SymInt):
        return value
    whole = _quotient(value, lambda size, divisor: (size + divisor - 1) // divisor)
    if whole is None and value.node.expr.has(OpaqueUnaryFn_log2):
        return math.ceil(builtins.float(value))  # the last bit decides
    return torch.sym_int(-((-value) // 1)) if whole is None else whole


def log2(value: Any) -> Any:
    return torch._sym_log2(torch.sym_float(value))  # type: ignore[attr-defined]


def log(value: Any, base: Any = math.e) -> Any:
    if base != math.e:
        return math.log(pinned(value), pinned(base))
    return log2(value) * math.log(2)


def pinned(value: Any) -> Any:
    """The value of a symbol as a number, which the graph then depends on."""
    return builtins.int(value) if isinstance(value, torch.SymInt) else builtins.float(value)
