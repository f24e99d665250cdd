"""Integer expressions made readable: Inductor's ``1 + ((-1)*s1) + ks0*x1*((7 + ks1) // 8)`` forms, through sympy.

Only used on expressions known to be integers. Rewrites keep the value for sizes of at least 1: ``max(1, n)`` becomes
``n`` (it only appears in strides, which address nothing when a size is 0; the problem's own is spelled ``max(0, n - 1) + 1``).
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterable
from contextlib import suppress
from functools import cache, lru_cache, reduce
from typing import Any

import sympy

from kernelllm.compiler.emit.kernels.integer_text import FLOATFLOOR, FLOATTRUNC, FLOORDIV, MAX, MIN, MOD, Printer
from kernelllm.core.text import syntax_tree

_SHORT = 2**20
"""Numbers above and below the line of a float's fraction up to which its products with sizes are exact."""
_INDEX = re.compile(r"[xyzri]\d+(_\d+)?|tmp\d+|\w*(index|offset|offsets)")
"""Names of Inductor's indices, which may be 0 or less where sizes are at least 1."""
_NAMED: dict[str, Any] = {"max": MAX, "min": MIN}


class NotInteger(ValueError):
    """The expression holds something that is no integer arithmetic."""


@cache
def symbol(name: str) -> Any:
    """The sympy symbol for a name; all are integers."""
    return sympy.Symbol(name, integer=True)


def to_sympy(node: ast.expr) -> Any:
    """An integer expression as sympy; raises NotInteger for anything but names, integers, ``+ - * // %``, max and min."""
    match node:
        case ast.Constant(value=bool()):
            raise NotInteger
        case ast.Constant(value=int() as value):
            return sympy.Integer(value)
        case ast.Name(id=name):
            return symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -to_sympy(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=0.5)):
            return _root(to_sympy(left))
        case ast.BinOp(left=left, op=op, right=right):
            chosen = _select(node)
            if chosen is not None:
                return chosen
            return _binary(op, to_sympy(left), to_sympy(right))
        case ast.Call(func=ast.Name(id=name), args=args) if name in _NAMED and not node.keywords:
            values = [to_sympy(a) for a in args]
            if name == "max" and sympy.Integer(1) in values and len(values) == 2:
                return values[1] if values[0] == 1 else values[0]
            return _NAMED[name](*values)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="tl"), attr="maximum" | "minimum" as which), args=[a, b]):
            return _NAMED[which[:3]](to_sympy(a), to_sympy(b))
        case ast.Call(func=ast.Attribute(attr="trunc" | "floor" as which), args=[a]):
            if (product := _float_product(a)) is not None:
                return (FLOATTRUNC if which == "trunc" else FLOATFLOOR)(*product)
            numerator, denominator = sympy.fraction(sympy.together(_rational(a)))
            if which == "floor" or not any(c < 0 for c in sympy.expand(numerator).as_coefficients_dict().values()):
                return _floor(numerator, denominator)  # sizes are not negative: rounding towards zero is rounding down
            above, below = (_NAMED["max"](n, sympy.Integer(0)) for n in (numerator, -numerator))
            return _floor(above, denominator) - _floor(below, denominator)
        case ast.Call(func=ast.Attribute(attr="sym_float" | "sym_int"), args=[a]):
            return to_sympy(a)
        case ast.Call(func=ast.Attribute(attr="sqrt" | "_sym_sqrt"), args=[a]):
            return _root(to_sympy(a))
        case ast.Call(func=ast.Attribute(attr="div_floor_integer"), args=[a, b]):
            return _floor(to_sympy(a), to_sympy(b))
    raise NotInteger(ast.unparse(node))


def _root(square: Any) -> Any:
    """The root of a square of sizes, which a float holds exactly. Raises NotInteger for other numbers."""
    positive = {s: sympy.Dummy(positive=True, integer=True) for s in square.free_symbols}
    root = sympy.sqrt(sympy.factor(square.xreplace(positive)))
    if any(not p.exp.is_Integer for p in root.atoms(sympy.Pow)) or not root.is_integer:
        raise NotInteger(f"sqrt({square})")
    return root.xreplace({new: old for old, new in positive.items()})


def _float_product(node: ast.expr) -> tuple[Any, Any, Any, Any] | None:
    """Arguments of :class:`FLOATFLOOR` for ``c * a`` and ``c * a / b``; None for anything else, and where the product is exact."""
    match node:
        case ast.BinOp(left=left, op=ast.Div(), right=right) if (product := _float_product(left)) is not None:
            return (*product[:3], product[3] * _whole(right))
        case ast.BinOp(left=minus, op=ast.Mult(), right=positive) if ast.unparse(minus) == "-1":
            return _float_product(ast.UnaryOp(ast.USub(), positive))
        case ast.BinOp(left=ast.UnaryOp(op=ast.USub(), operand=number), op=ast.Mult(), right=size):
            return _float_product(ast.UnaryOp(ast.USub(), ast.BinOp(number, ast.Mult(), size)))
        case ast.BinOp(left=ast.Constant(value=float() as value), op=ast.Mult(), right=size) if not _is_short(value):
            above, below = value.as_integer_ratio()
            return sympy.Integer(above), sympy.Integer(below), to_sympy(size), sympy.Integer(1)
        case ast.BinOp(left=left, op=ast.Mult(), right=right) if (product := _float_product(left)) is not None:
            return (*product[:2], product[2] * to_sympy(right), product[3])
        case ast.UnaryOp(op=ast.USub(), operand=positive) if (product := _float_product(positive)) is not None:
            return (-product[0], *product[1:])
    return None


def _whole(node: ast.expr) -> Any:
    """As :func:`to_sympy`; whole numbers may be written as floats."""
    if isinstance(node, ast.Constant) and isinstance(node.value, float) and node.value.is_integer():
        return sympy.Integer(int(node.value))
    return to_sympy(node)


def _is_short(value: float) -> bool:
    return max(map(abs, value.as_integer_ratio())) <= _SHORT


def _select(node: ast.BinOp) -> Any:
    """``(1) * ((1) >= (n)) + (n) * ((n) > (1))`` is how Inductor prints max(1, n) inside a kernel; with ``<=`` and ``<`` it is min."""
    match node:
        case ast.BinOp(
            left=ast.BinOp(left=a, op=ast.Mult(), right=ast.Compare(left=c, ops=[ast.GtE() | ast.LtE() as first], comparators=[d])),
            op=ast.Add(),
            right=ast.BinOp(left=b, op=ast.Mult(), right=ast.Compare(left=e, ops=[ast.Gt() | ast.Lt() as second], comparators=[f])),
        ):
            texts = [ast.unparse(n) for n in (a, b, c, d, e, f)]
            largest = isinstance(first, ast.GtE)
            if texts[0] == texts[2] == texts[5] and texts[1] == texts[3] == texts[4] and largest == isinstance(second, ast.Gt):
                if largest and "1" in texts[:2]:
                    other = b if texts[0] == "1" else a
                    if not any(_INDEX.fullmatch(n.id) for n in ast.walk(other) if isinstance(n, ast.Name)):
                        return to_sympy(other)
                return (MAX if largest else MIN)(to_sympy(a), to_sympy(b))
    return None


def _binary(op: ast.operator, left: Any, right: Any) -> Any:
    match op:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.FloorDiv():
            return _floor(left, right)
        case ast.Mod():
            return _mod(left, right)
        case ast.Pow() if right.is_Integer and right > 0:
            return left**right
    raise NotInteger


def _floor(left: Any, right: Any) -> Any:
    if right == 1:
        return left
    if left.is_Integer and right.is_Integer and right != 0:
        return sympy.Integer(int(left) // int(right))
    return FLOORDIV(left, right)


def _mod(left: Any, right: Any) -> Any:
    if right == 1:
        return sympy.Integer(0)
    return MOD(left, right)


def parse(text: str) -> Any:
    """:func:`to_sympy` on text."""
    return to_sympy(syntax_tree(text, mode="eval").body)


def text_of(expr: Any) -> str:
    """Python text of a sympy expression made by this module."""
    return ast.unparse(syntax_tree(Printer().doprint(expr), mode="eval"))


@lru_cache(maxsize=20_000)
def pretty(expr: Any) -> str:
    """The shortest of the plain, factored and expanded forms, as Python text."""
    if expr.is_Symbol or expr.is_Integer:
        return text_of(expr)
    forms = {text_of(expr)}
    with suppress(sympy.PolynomialError, NotImplementedError):
        forms.add(text_of(sympy.factor(expr)))
    return min(forms, key=lambda t: (len(t), t))


def to_ast(text: str) -> ast.expr:
    """Text of one expression as a syntax tree."""
    return syntax_tree(text, mode="eval").body


def tidy(node: ast.expr) -> ast.expr:
    """An integer expression of sizes, rewritten; unchanged where it is no integer arithmetic."""
    try:
        return to_ast(pretty(to_sympy(node)))
    except (NotInteger, RecursionError):
        return node


def ratio(node: ast.expr) -> ast.expr:
    """A quotient of sizes with common factors cancelled: ``n*m/n / (n*m/n - 1.0)`` becomes ``m / (m - 1)``.

    Unchanged where a number is no quotient of small ones: the whole numbers would be too large.
    """
    try:
        made = to_ast(Printer().doprint(sympy.cancel(_rational(node))))
        large = any(isinstance(n, ast.Constant) and isinstance(n.value, int) and n.value >= 2**31 for n in ast.walk(made))
        return node if large else made
    except (NotInteger, RecursionError, sympy.PolynomialError):
        return node


def _rational(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=float() as value) if value.is_integer():
            return sympy.Integer(int(value))
        case ast.Constant(value=float() as value):
            if not _is_short(value):
                raise NotInteger
            return sympy.Rational(str(value))
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return _rational(left) / _rational(right)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() as op, right=right):
            return _binary(op, _rational(left), _rational(right))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_rational(operand)
    return to_sympy(node)


def collect(node: ast.expr, sizes: Iterable[str]) -> ast.expr:
    """An index expression grouped by what multiplies it: ``row * n_cols + (col - 1)``, inside ``//`` and ``%`` as well.

    ``sizes`` are the names that hold sizes; the rest are indices. Unchanged where it is no integer arithmetic.
    """
    try:
        return to_ast(_collected(to_sympy(node), frozenset(symbol(s) for s in sizes)))
    except (NotInteger, RecursionError):
        return node


@lru_cache(maxsize=20_000)
def _collected(expr: Any, known: frozenset[Any]) -> str:
    expr = sympy.expand(expr)
    inner: dict[Any, Any] = {}
    for call in sorted(expr.atoms(FLOORDIV, MOD, MAX, MIN), key=lambda c: -len(str(c))):
        if call.free_symbols <= known:
            continue
        parts = [_collected(a, known) if not a.free_symbols <= known else pretty(a) for a in call.args]
        if isinstance(call, MAX | MIN):  # of indices: Python's own max compares no blocks
            inner[call] = sympy.Symbol(f"tl.{'maximum' if isinstance(call, MAX) else 'minimum'}({', '.join(parts)})", integer=True)
            continue
        operator = "//" if isinstance(call, FLOORDIV) else "%"
        texts = [t if t.isidentifier() or t.isdigit() else f"({t})" for t in parts]
        inner[call] = sympy.Symbol(f"({texts[0]} {operator} {texts[1]})", integer=True)
    expr = expr.xreplace(inner)
    return ast.unparse(to_ast(_grouped(expr, known)))


def _grouped(expr: Any, known: frozenset[Any]) -> str:
    groups: dict[Any, Any] = {}
    for term in sympy.Add.make_args(expr):
        weight, rest = sympy.Integer(1), sympy.Integer(1)
        sized = bool(term.free_symbols & known)
        for factor in sympy.Mul.make_args(term):
            if factor.is_Integer and factor < 0:
                rest *= -1
                factor = -factor
            if (not factor.is_number and factor.free_symbols <= known) or (factor.is_Integer and not sized and not term.is_number):
                weight *= factor
            else:
                rest *= factor
        groups[weight] = groups.get(weight, sympy.Integer(0)) + rest
    parts: list[str] = []
    for weight in sorted(groups, key=lambda w: (-len(sympy.Mul.make_args(w)) if w != 1 else 1, str(w))):
        if groups[weight] != 0:
            parts.append(_group(groups[weight], weight))
    return reduce(_added, parts) if parts else "0"


def _added(text: str, part: str) -> str:
    """The sum of two. A minus in front of a quotient is the dividend's: ``-n // 2`` is no ``-(n // 2)``."""
    first: Any = syntax_tree(part).body[0].value  # type: ignore[attr-defined]
    while isinstance(first, ast.BinOp):
        if isinstance(first.op, ast.FloorDiv | ast.Mod) and part.startswith("-"):
            return f"{text} + ({part})"
        first = first.left
    return f"{text} - {part[1:]}" if part.startswith("-") else f"{text} + {part}"


def _group(rest: Any, weight: Any) -> str:
    if weight == 1:
        return text_of(rest)
    weight_text = text_of(weight)
    if rest == 1:
        return weight_text
    if rest == -1:
        return f"-{weight_text}" if weight.is_Symbol else f"-({weight_text})"
    if rest.is_Integer:
        return f"{text_of(rest)} * ({weight_text})" if weight.has(FLOORDIV, MOD) else f"{text_of(rest)} * {weight_text}"
    rest_text = text_of(rest)
    if rest.is_Add:
        rest_text = f"({rest_text})"
    elif rest_text.startswith("-"):
        rest_text = f"-{rest_text[1:]}"
    return f"{rest_text} * {weight_text}" if weight.is_Symbol else f"{rest_text} * ({weight_text})"


_COMPARED: dict[type[ast.cmpop], Any] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip


def compared(comparison: ast.Compare) -> bool | None:
    """What a comparison of two whole numbers says; None where it is of anything else."""
    sides = [comparison.left, *comparison.comparators]
    for side in sides:
        inner = side.operand if isinstance(side, ast.UnaryOp) and isinstance(side.op, ast.USub) else side
        if not isinstance(inner, ast.Constant) or type(inner.value) not in (int, bool):
            return None
    if len(sides) != 2 or type(comparison.ops[0]) not in _COMPARED:
        return None
    return bool(_COMPARED[type(comparison.ops[0])](*map(ast.literal_eval, sides)))
