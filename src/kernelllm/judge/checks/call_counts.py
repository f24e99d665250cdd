"""Whether a candidate's source counts its calls, or keeps a list of them, and decides by that."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelllm.core.text import parse

_CHANGES = frozenset({
    "append", "appendleft", "add", "add_", "pop", "popleft", "popitem", "insert", "remove", "discard", "sub_", "update", "extend", "clear",
    "setdefault", "copy_", "fill_",
})  # fmt: skip


def counts_its_calls(source: str) -> bool:
    """Whether what is changed outside of a function's own names is also asked for in a condition. Honest files do so as well, to log or to
    prepare something once: such a candidate is called more often, and nothing is said of it."""
    try:
        tree = parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return any(_takes_next(function) for function in functions) or bool(
        {name for function in functions for name in _changed(function)} & {name for node in ast.walk(tree) for name in _asked(node)}
    )


def _changed(function: ast.FunctionDef) -> Iterator[str]:
    outer = {name for node in ast.walk(function) if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    for node in ast.walk(function):
        match node:
            case ast.AugAssign(target=ast.Name(id=name)) if name in outer:
                yield name
            case ast.AugAssign(target=ast.Attribute() | ast.Subscript() as target) | ast.Assign(
                targets=[ast.Subscript() as target], value=ast.BinOp()
            ):
                yield from _of(target)
            case ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.BinOp(op=ast.Add() | ast.Sub(), right=ast.Constant())):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.BinOp()) if name in outer:
                yield name
            case ast.Call(func=ast.Attribute(value=ast.Attribute() | ast.Name() as owner, attr=method)) if method in _CHANGES:
                yield from _of(owner)


def _takes_next(function: ast.FunctionDef) -> bool:
    """``next(self.steps)``: of a generator that is kept. ``next(self.parameters())`` is made anew."""
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args)
    return any(call.func.id == "next" and isinstance(call.args[0], ast.Attribute | ast.Name) for call in calls)  # type: ignore[attr-defined]


def _asked(node: ast.AST) -> set[str]:
    match node:
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            return _names(test)
        case ast.Compare():
            return _names(node)
    return set()


def _of(target: ast.expr) -> Iterator[str]:
    while isinstance(target, ast.Subscript):
        target = target.value
    if isinstance(target, ast.Attribute):
        yield target.attr
    elif isinstance(target, ast.Name):
        yield target.id


def _names(node: ast.AST) -> set[str]:
    return {inner.attr if isinstance(inner, ast.Attribute) else inner.id for inner in ast.walk(node)
            if isinstance(inner, ast.Attribute | ast.Name)}  # fmt: skip
