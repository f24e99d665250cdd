"""Values of a copied function that are read once move to the place where they are read."""

from __future__ import annotations

import ast
from collections import Counter

from kernelllm.compiler.emit.ast_tools import Replace, assigned, every, reads
from kernelllm.core.text import syntax_tree

_WIDTH, _GRID = 96, 96
_PLAIN = ("tl.cdiv", "tl.program_id", "tl.minimum", "tl.maximum", "triton.cdiv", "triton.next_power_of_2", "math.prod", "min", "max")
_METHODS = ("to", "stride", "element_size", "numel")
_NODES = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.Call, ast.Tuple, ast.operator,
          ast.unaryop, ast.cmpop, ast.expr_context, ast.Slice)  # fmt: skip


def joined(function: ast.FunctionDef) -> None:
    """Put temporaries that are read once into the statement that reads them, in place, where the line stays short."""
    bound = Counter(n for s in every(function.body) for n in assigned(s)) + Counter(a.arg for a in function.args.args)
    used = reads(ast.Module(function.body, [])) + Counter(n.target.id for n in ast.walk(function)
                                                          if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name))
    single = {n for n in bound if bound[n] == 1 and used[n] == 1}
    for owner in ast.walk(function):
        for name in ("body", "orelse"):
            block = getattr(owner, name, None)
            if isinstance(block, list):
                setattr(owner, name, _block(block, single))


def _block(block: list[ast.stmt], single: set[str]) -> list[ast.stmt]:
    at = 0
    while at < len(block):
        match block[at]:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) as statement if name in single and _plain(value):
                reader = _reader(block, at, name, set(reads(value)))
                if reader is not None and (whole := _with(block[reader], name, value)) is not None:
                    whole.comments = [*getattr(statement, "comments", []), *getattr(block[reader], "comments", [])]  # type: ignore[attr-defined]
                    block = [*block[:at], *block[at + 1 : reader], whole, *block[reader + 1 :]]
                    continue
        at += 1
    return block


def _plain(value: ast.expr) -> bool:
    """Whether an expression computes from numbers alone, so that it may be computed later."""
    calls = [n.func for n in ast.walk(value) if isinstance(n, ast.Call)]
    known = all(ast.unparse(f) in _PLAIN or (isinstance(f, ast.Attribute) and f.attr in _METHODS) for f in calls)
    return known and not isinstance(value, ast.Name | ast.Constant) and all(isinstance(n, _NODES) for n in ast.walk(value))


def _reader(block: list[ast.stmt], at: int, name: str, needs: set[str]) -> int | None:
    """Where the value is read, if nothing that it is made of changes before."""
    for i in range(at + 1, len(block)):
        if reads(block[i])[name]:
            inner = [n for n in ast.walk(block[i]) if isinstance(n, ast.ListComp | ast.GeneratorExp | ast.Lambda) and reads(n)[name]]
            return i if isinstance(block[i], ast.Assign | ast.AugAssign | ast.Expr | ast.Return) and not inner else None
        if needs & {n for s in every([block[i]]) for n in assigned(s)}:
            return None
    return None


def _with(statement: ast.stmt, name: str, value: ast.expr) -> ast.stmt | None:
    whole = Replace({name: value}).visit(syntax_tree(ast.unparse(statement)).body[0])
    match whole, statement:
        case ast.Expr(value=ast.Call(func=ast.Subscript() as launched)), ast.Expr(value=ast.Call(func=grid)) if reads(grid)[name]:
            head = ast.unparse(launched)
            return whole if len(head) <= _GRID and head.count("[") == 1 else None  # launches are told by their brackets
    return whole if len(ast.unparse(whole)) <= _WIDTH else None


__all__ = ["joined"]
