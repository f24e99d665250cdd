"""Does a kernel compute anything, or does it only move data? Does a candidate branch? Read off the source."""

from __future__ import annotations

import ast
import textwrap

from kernelllm.core.source import parse

_STORES = {"store"}
_SOURCES = {"load", "zeros", "full", "zeros_like", "cast"}
_SHAPES = {"to", "trans", "reshape", "view", "broadcast_to", "expand_dims", "permute", "ravel", "join", "flip"}


def computes(source: str) -> bool:
    """False when every value that the kernel stores was loaded (or is a constant) and nothing was done to it. True in doubt."""
    try:
        tree = parse(textwrap.dedent(source))
    except (SyntaxError, ValueError, RecursionError):
        return True
    assigned: dict[str, list[ast.expr | None]] = {}
    stored: list[ast.expr] = []
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                assigned.setdefault(name, []).append(value)
            case ast.AugAssign(target=ast.Name(id=name)):
                assigned.setdefault(name, []).append(None)
            case ast.Assign(targets=targets):
                for name in (inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)):
                    assigned.setdefault(name, []).append(None)
            case ast.Call(func=ast.Attribute(attr=attr), args=args) if attr in _STORES and len(args) > 1:
                stored.append(args[1])
            case ast.Call(func=ast.Attribute(attr=attr)) if attr in _STORES or attr.startswith("atomic_"):
                return True
    return not stored or not all(_moved(value, assigned, 0) for value in stored)


def branches(source: str) -> bool:
    """Whether any function of a candidate chooses between two ways, so that it may take one at some sizes alone. True in doubt."""
    try:
        tree = parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return True
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.Lambda)]
    return any(isinstance(node, ast.If | ast.IfExp | ast.Match) for function in functions for node in ast.walk(function))


def _moved(value: ast.expr | None, assigned: dict[str, list[ast.expr | None]], depth: int) -> bool:
    """True when the expression is a loaded value or a constant, at most reshaped or cast."""
    if depth > 10:
        return False
    match value:
        case ast.Constant():
            return True
        case ast.UnaryOp(operand=ast.Constant()):
            return True
        case ast.Name(id=name):
            return name in assigned and all(_moved(each, assigned, depth + 1) for each in assigned[name])
        case ast.Call(func=ast.Attribute(value=owner, attr=attr), args=args):
            if attr in _SOURCES:
                return True
            if attr in _SHAPES:
                inner = args[0] if isinstance(owner, ast.Name) and owner.id in ("tl", "language") and args else owner
                return _moved(inner, assigned, depth + 1)
        case ast.Subscript(value=inner):
            return _moved(inner, assigned, depth + 1)
    return False
