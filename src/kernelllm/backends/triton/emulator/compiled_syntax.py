"""Syntax that means something else in a Triton kernel than in Python.

``and``, ``or`` and ``not`` on values of the kernel look at every lane, and both sides are evaluated. On constants they are Python's.
The numbers of ``range`` and ``tl.range`` are scalars of the kernel, those of ``tl.static_range`` are constants.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from functools import reduce
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as ti

tensor = tl.core.tensor


def install() -> None:
    """Replace ``tl.range``, of which Triton makes Python's."""
    tl.range = tl.core.range = _range


def rewrite(function: ast.FunctionDef) -> None:
    """Give a kernel's syntax the compiler's meaning. :data:`MEANINGS` has the names that it uses then."""
    _Meanings().generic_visit(function)
    ast.fix_missing_locations(function)


def _and(left: Any, right: Any) -> Any:
    """What ``and`` gives where its left side does not decide."""
    if not isinstance(left, tensor):
        return right
    if not isinstance(right, tensor):
        return left if right else right
    return ti.interpreter_semantic.logical_and(left, right)


def _or(left: Any, right: Any) -> Any:
    if not isinstance(left, tensor):
        return right
    if not isinstance(right, tensor):
        return right if right else left
    return ti.interpreter_semantic.logical_or(left, right)


def _not(value: Any) -> Any:
    return ti.interpreter_semantic.not_(value) if isinstance(value, tensor) else not value


def _false(value: Any) -> bool:
    return not isinstance(value, tensor) and not value


def _true(value: Any) -> bool:
    return not isinstance(value, tensor) and bool(value)


def _range(first: Any, second: Any = None, step: Any = None, **options: Any) -> Iterator[Any]:
    """The numbers as scalars, of the type that the bounds and the step have together."""
    begin, end = (0, first) if second is None else (first, second)
    step = 1 if step is None else step
    semantic = ti.interpreter_semantic
    kinds = [semantic.to_tensor(bound).dtype for bound in (begin, end, step)]
    if not all(kind.is_int() for kind in kinds):
        raise TypeError(f"For loop bounds and step must all be ints, are ({', '.join(map(str, kinds))})")
    kind = reduce(semantic.integer_promote_impl, kinds)
    of_numpy = ti._get_np_dtype(kind)
    for number in builtins.range(begin, end, step):
        yield tensor(ti.TensorHandle(np.array([number], of_numpy), kind), kind)


def _looped(iterator: Any) -> Any:
    return _range if iterator is builtins.range else iterator


MEANINGS = {
    "compiled and": _and, "compiled or": _or, "compiled not": _not, "compiled loop": _looped,
    "constant false": _false, "constant true": _true,
}  # fmt: skip
"""By names that no source could hold."""


class _Meanings(ast.NodeTransformer):
    def __init__(self) -> None:
        self._kept = 0

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        is_and = isinstance(node.op, ast.And)
        result = node.values[0]
        for value in node.values[1:]:
            self._kept += 1
            kept = f"left side {self._kept}"
            decided = _call("constant false" if is_and else "constant true", ast.NamedExpr(ast.Name(kept, ast.Store()), result))
            both = _call("compiled and" if is_and else "compiled or", ast.Name(kept, ast.Load()), value)
            result = ast.copy_location(ast.IfExp(decided, ast.Name(kept, ast.Load()), both), node)
        return result

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.iter, ast.Call):
            node.iter.func = ast.copy_location(_call("compiled loop", node.iter.func), node.iter.func)
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return ast.copy_location(_call("compiled not", node.operand), node) if isinstance(node.op, ast.Not) else node


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])
