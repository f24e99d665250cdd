"""Small tools on syntax trees: names that nodes read, bind or set, copies of statements, assignments that nothing reads."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping

from kernelllm.core.text import syntax_tree


def assigned(statement: ast.stmt) -> list[str]:
    """Names that one statement itself binds (not those in its nested blocks)."""
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign | ast.AugAssign | ast.For):
        targets = [statement.target]
    return [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]


def every(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements of a body in order, nested blocks included."""
    for statement in body:
        yield statement
        for block in ("body", "orelse"):
            yield from every(getattr(statement, block, []))


def names(node: ast.AST) -> set[str]:
    """All names that a node reads or binds."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def stored(node: ast.AST) -> list[str]:
    """Names that a node sets; those of a comprehension are its own."""
    inside = {id(n) for part in ast.walk(node) if isinstance(part, ast.comprehension) for n in ast.walk(part.target)}
    return [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and id(n) not in inside]


def bindings(body: list[ast.stmt]) -> Counter[str]:
    """How many statements bind each name."""
    return Counter(name for s in every(body) for name in assigned(s))


def reads(node: ast.AST) -> Counter[str]:
    """How often each name is read below ``node``."""
    return Counter(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))


def all_reads(body: list[ast.stmt]) -> Counter[str]:
    """How often each name is read in a body."""
    total: Counter[str] = Counter()
    for statement in body:
        total += reads(statement)
    return total


def name_of(func: ast.expr) -> str:
    """``tl.load`` for such a callee, ``.to`` for a method of any other expression."""
    if isinstance(func, ast.Name):
        return func.id
    if isinstance(func, ast.Attribute):
        if isinstance(func.value, ast.Name):
            return f"{func.value.id}.{func.attr}"
        return f".{func.attr}"
    return ""


def call(func: str, *args: ast.expr, **keywords: ast.expr) -> ast.Call:
    """A call of a dotted name."""
    return ast.Call(syntax_tree(func, mode="eval").body, list(args), [ast.keyword(k, v) for k, v in keywords.items()])


class Rename(ast.NodeTransformer):
    """Renames names, everywhere."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.names.get(node.id, node.id), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg = self.names.get(node.arg, node.arg)
        return node


class Replace(ast.NodeTransformer):
    """Puts expressions in the place of names that are read."""

    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Load) and node.id in self.values:
            return copy_of(self.values[node.id])
        return node


def conjuncts(mask: ast.expr) -> list[ast.expr]:
    """The parts of ``a & b & c``."""
    if isinstance(mask, ast.BinOp) and isinstance(mask.op, ast.BitAnd):
        return [*conjuncts(mask.left), *conjuncts(mask.right)]
    return [mask]


def copy_of(node: ast.expr) -> ast.expr:
    """A fresh copy of an expression."""
    return syntax_tree(ast.unparse(node), mode="eval").body


def fresh(body: list[ast.stmt]) -> list[ast.stmt]:
    """A fresh copy of statements."""
    return syntax_tree("\n".join(ast.unparse(ast.fix_missing_locations(s)) for s in body)).body


def prune(body: list[ast.stmt]) -> list[ast.stmt]:
    """Drop assignments that nothing reads, until none is left; unread members of a tuple target become ``_``."""
    while True:
        body, changed = _sweep(body, all_reads(body))
        if not changed:
            return body


def _sweep(block: list[ast.stmt], used: Counter[str]) -> tuple[list[ast.stmt], bool]:
    kept: list[ast.stmt] = []
    changed = False
    for statement in block:
        if isinstance(statement, ast.For | ast.If):
            statement.body, inner = _sweep(statement.body, used)
            changed |= inner
            if not statement.body:
                changed = True
                continue
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            names = assigned(statement)
            live = [n for n in names if _live(n, statement, used)]
            if names and not live:
                changed = True
                continue
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            if isinstance(target, ast.Tuple):
                for i, element in enumerate(target.elts):
                    if isinstance(element, ast.Name) and element.id != "_" and element.id not in live:
                        target.elts[i] = ast.Name("_", ast.Store())
                        changed = True
        kept.append(statement)
    return kept, changed


def _live(name: str, statement: ast.stmt, used: Counter[str]) -> bool:
    """Whether anything but the statement itself reads the name."""
    return used[name] > reads(statement)[name]
