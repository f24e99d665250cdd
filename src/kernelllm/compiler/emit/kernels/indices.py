"""Index arithmetic of a finished kernel made shorter: repeated indices get a name, remainders that a mask makes needless are left out."""

from __future__ import annotations

import ast
from collections import Counter

from kernelllm.compiler.emit.ast_tools import assigned, conjuncts, name_of, reads
from kernelllm.compiler.emit.kernels import integers

_ACCESS = ("tl.load", "tl.store", "tl.atomic_add")


def regrouped(body: list[ast.stmt], sizes: set[str]) -> list[ast.stmt]:
    """Index expressions grouped by what multiplies them, now that names are final and equal sizes are one."""

    class Regroup(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.Call:
            self.generic_visit(node)
            if name_of(node.func) in _ACCESS and isinstance(node.args[0], ast.BinOp):
                pointer = node.args[0]
                if isinstance(pointer.left, ast.Name) and pointer.left.id.endswith("_ptr") and not _calls(pointer.right):
                    pointer.right = integers.collect(pointer.right, sizes)
            return node

        def visit_Compare(self, node: ast.Compare) -> ast.Compare:
            self.generic_visit(node)
            if isinstance(node.left, ast.BinOp) and not _calls(node.left) and "_ptr" not in ast.unparse(node.left):
                node.left = integers.collect(node.left, sizes)
            return node

    return [Regroup().visit(s) for s in body]


def without_idle_remainders(body: list[ast.stmt]) -> list[ast.stmt]:
    """``tl.load(p + i % n, mask)`` as ``tl.load(p + i, mask)`` where the mask says ``i < n``; i is never negative."""

    def sweep(block: list[ast.stmt], bounds: dict[str, tuple[str, str]]) -> list[ast.stmt]:
        bounds = dict(bounds)
        for statement in block:
            if isinstance(statement, ast.For | ast.If):
                statement.body = sweep(statement.body, bounds)
                continue
            for node in ast.walk(statement):
                if isinstance(node, ast.Call) and name_of(node.func) in _ACCESS:
                    at = 1 if name_of(node.func) == "tl.load" else 2
                    if len(node.args) > at:
                        for conjunct in conjuncts(node.args[at]):
                            bound = bounds.get(ast.unparse(conjunct)) or _bound(conjunct)
                            if bound is not None:
                                node.args[0] = _Idle(*bound).visit(node.args[0])
            for name in assigned(statement):
                bounds.pop(name, None)
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                bound = _bound(statement.value)
                if bound is not None:
                    bounds[statement.targets[0].id] = bound
        return block

    return sweep(body, {})


def _bound(node: ast.expr) -> tuple[str, str] | None:
    match node:
        case ast.Compare(left=left, ops=[ast.Lt()], comparators=[right]):
            return ast.unparse(left), ast.unparse(right)
    return None


class _Idle(ast.NodeTransformer):
    def __init__(self, index: str, limit: str) -> None:
        self.index, self.limit = index, limit

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        if isinstance(node.op, ast.Mod) and ast.unparse(node.left) == self.index and ast.unparse(node.right) == self.limit:
            return node.left
        return self.generic_visit(node)


def named(body: list[ast.stmt], sizes: set[str], taken: set[str], shortest: int = 9) -> list[ast.stmt]:
    """Indices that several statements of one block spell out get a name, the longest first."""
    for statement in body:
        if isinstance(statement, ast.For | ast.If):
            statement.body = named(statement.body, sizes, taken, shortest)
    for _ in range(6):
        choice = _most_repeated(body, sizes, shortest)
        if choice is None:
            return body
        text, first = choice
        name, number = "index", 1
        while name in taken:
            number += 1
            name = f"index_{number}"
        taken.add(name)
        body = [s if isinstance(s, ast.For | ast.If) else _Spelt(text, name).visit(s) for s in body]
        body.insert(first, ast.Assign([ast.Name(name, ast.Store())], integers.to_ast(text)))
    return body


def _most_repeated(body: list[ast.stmt], sizes: set[str], shortest: int) -> tuple[str, int] | None:
    uses: Counter[str] = Counter()
    first: dict[str, int] = {}
    inside: dict[str, set[str]] = {}
    bound_at = {n: i for i, s in enumerate(body) for n in assigned(s)}
    for i, statement in enumerate(body):
        if isinstance(statement, ast.For | ast.If):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.FloorDiv | ast.Mod):
                names = set(reads(node))
                text = ast.unparse(node)
                if len(text) < shortest or names <= sizes or _calls(node) or not _index_only(node, names):
                    continue
                uses[text] += 1
                first.setdefault(text, i)
                inside[text] = names
    for text in sorted(uses, key=lambda t: (-len(t), t)):
        if uses[text] < 2 or any(bound_at.get(n, -1) >= first[text] for n in inside[text]):
            continue
        return text, first[text]
    return None


def _index_only(node: ast.expr, names: set[str]) -> bool:
    """Whether the names are ones that hold indices in emitted kernels."""
    stems = ("row", "col", "offset", "index", "inner", "xs", "ys", "zs", "group")
    for n in names:
        if n.endswith("_ptr"):
            return False
    indices = [n for n in names if n.startswith(stems) or n.endswith("_index") or (n[:1] in "ij" and n[1:2].isdigit())]
    floats = any(isinstance(n, ast.Constant) and isinstance(n.value, float) for n in ast.walk(node))
    return bool(indices) and not floats


class _Spelt(ast.NodeTransformer):
    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text, name

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        return ast.Name(self.name, ast.Load()) if ast.unparse(node) == self.text else self.generic_visit(node)


def _calls(node: ast.AST) -> bool:
    return any(isinstance(n, ast.Call | ast.Subscript) for n in ast.walk(node))
