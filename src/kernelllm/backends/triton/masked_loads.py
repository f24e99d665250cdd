"""Masked lanes that a load gives no value, followed through a kernel's source to where they count.

Only what is certain is told: a lane is followed along the axes of its mask, through elementwise arithmetic, until ``tl.where`` or anything
that is not known here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

_REDUCTIONS = frozenset({"sum", "max", "min", "argmax", "argmin", "xor_sum", "cumsum", "cumprod", "sort", "histogram", "reduce"})
_RANGES, _SCALARS = frozenset({"arange"}), frozenset({"program_id", "num_programs", "cdiv"})
_ELEMENTWISE = frozenset({
    "to", "cast", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "abs", "sin", "cos", "erf", "sigmoid", "maximum", "minimum", "fma",
})  # fmt: skip
Axes = frozenset[int]


def undefined_results(kernel: ast.FunctionDef) -> Iterator[tuple[int, str]]:
    """Line of a load without ``other`` whose masked lanes count, and what they count in."""
    axes: dict[str, Axes | None] = {a.arg: frozenset() for a in kernel.args.args}
    lanes: dict[str, tuple[int, Axes]] = {}
    for node in _statements(kernel.body):
        for call in (inner for inner in ast.walk(node) if isinstance(inner, ast.Call)):
            if (name := _function(call)) in _REDUCTIONS and call.args:
                found, axis = _undefined(call.args[0], axes, lanes), _axis(call)
                if found and (axis is None or axis in found[1]):
                    yield found[0], f"tl.{name} (line {call.lineno})"
            elif name in ("store", "atomic_add") and len(call.args) == 2 and not _keyword(call, "mask"):
                found = _undefined(call.args[1], axes, lanes)
                if found:
                    yield found[0], f"tl.{name} without a mask (line {call.lineno})"
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                axes[name] = _axes(value, axes)
                found = _undefined(value, axes, lanes)
                lanes.pop(name, None)
                if found:
                    lanes[name] = found
            case ast.AugAssign(target=ast.Name(id=name), value=value):
                axes[name] = _joined([axes.get(name), _axes(value, axes)])
                if found := _undefined(value, axes, lanes):
                    lanes.setdefault(name, found)


def _statements(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Simple statements in the order of the source, and the heads of compound ones."""
    for statement in body:
        if isinstance(statement, ast.For | ast.While | ast.If):
            yield statement.iter if isinstance(statement, ast.For) else statement.test
            yield from _statements([*statement.body, *statement.orelse])
        else:
            yield statement


def _undefined(node: ast.expr, axes: dict[str, Axes | None], lanes: dict[str, tuple[int, Axes]]) -> tuple[int, Axes] | None:
    """Line of the load, and the axes along which lanes of a value are undefined."""

    def inner(*parts: ast.expr) -> tuple[int, Axes] | None:
        return next((found for part in parts if (found := _undefined(part, axes, lanes))), None)

    match node:
        case ast.Name(id=name):
            return lanes.get(name)
        case ast.BinOp(left=left, right=right):
            return inner(left, right)
        case ast.UnaryOp(operand=operand):
            return inner(operand)
        case ast.Call():
            name, mask = _function(node), _keyword(node, "mask")
            if name == "load" and mask is not None and not _keyword(node, "other") and len(node.args) == 1:
                along = _axes(mask, axes)
                return (node.lineno, along) if along else None
            if name in _ELEMENTWISE:
                method = isinstance(node.func, ast.Attribute) and name == "to"
                return inner(*([node.func.value] if method and isinstance(node.func, ast.Attribute) else node.args))
    return None


def _axes(node: ast.expr, known: dict[str, Axes | None]) -> Axes | None:
    """Axes along which a value differs; None where that cannot be told."""
    match node:
        case ast.Constant():
            return frozenset()
        case ast.Name(id=name):
            return known.get(name)
        case ast.BinOp(left=left, right=right):
            return _joined([_axes(left, known), _axes(right, known)])
        case ast.Compare(left=left, comparators=others):
            return _joined([_axes(left, known), *(_axes(other, known) for other in others)])
        case ast.UnaryOp(operand=operand):
            return _axes(operand, known)
        case ast.Subscript(value=value, slice=ast.Tuple(elts=parts)):
            whole = [index for index, part in enumerate(parts) if isinstance(part, ast.Slice)]
            return frozenset(whole) if _axes(value, known) == frozenset({0}) and len(whole) == 1 else None
        case ast.Call() if _function(node) in _RANGES:
            return frozenset({0})
        case ast.Call() if _function(node) in _SCALARS:
            return frozenset()
    return None


def _joined(parts: list[Axes | None]) -> Axes | None:
    known = [part for part in parts if part is not None]
    return frozenset().union(*known) if len(known) == len(parts) else None


def _function(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def _axis(call: ast.Call) -> int | None:
    """The axis of a reduction; None: all axes."""
    given = _keyword(call, "axis") or (call.args[1] if len(call.args) > 1 else None)
    return given.value if isinstance(given, ast.Constant) and isinstance(given.value, int) else None
