"""A folded kernel body without what a person would leave out: lanes of their own, hints to the cache that protect nothing, single names."""

from __future__ import annotations

import ast

from kernelllm.compiler.emit.ast_tools import Replace, all_reads, assigned, bindings, call, every, name_of, reads

_WIDTH = 76


def shortened(body: list[ast.stmt]) -> list[ast.stmt]:
    """The same body in fewer and shorter lines."""
    body = _cache_hints(_lanes(body))
    return _joined(body, all_reads(body), bindings(body))


def spelled(body: list[ast.stmt]) -> list[ast.stmt]:
    """Helpers that are called once as what they do, and zeros by their name."""
    uses = all_reads(body)
    visitor = _Spelled({n for n in ("maximum", "minimum") if uses[n] == 1})
    return [visitor.visit(s) for s in body]


def _lanes(body: list[ast.stmt]) -> list[ast.stmt]:
    """``cols = start + lanes`` with the range itself in the place of ``lanes``."""
    made = {s.targets[0].id: s for s in body if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name)}
    for name in ("r0_base", "r1_base"):
        statement = made.get(name)
        readers = [s for s in every(body) if not hasattr(s, "body") and name in reads(s)]
        if statement is None or not all(assigned(s) == [name.replace("base", "index")] for s in readers):
            continue
        put = Replace({name: statement.value})
        for reader in readers:
            assert isinstance(reader, ast.Assign)
            if isinstance(reader.value, ast.BinOp) and isinstance(reader.value.left, ast.Name) and reader.value.left.id == name:
                reader.value.left, reader.value.right = reader.value.right, reader.value.left
            reader.value = put.visit(reader.value)
        body = [s for s in body if s is not statement]
    return body


def _cache_hints(body: list[ast.stmt]) -> list[ast.stmt]:
    """The body without hints, where no loop asks for a line to stay: there is nothing to protect then."""
    loops = [s for s in body if isinstance(s, ast.For)]
    if any(isinstance(n, ast.Constant) and n.value == "evict_last" for loop in loops for n in ast.walk(loop)):
        return body
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                node.keywords = [k for k in node.keywords if k.arg != "eviction_policy"]
    return body


class _Spelled(ast.NodeTransformer):
    def __init__(self, names: set[str]) -> None:
        self.names = names

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        name = name_of(node.func)
        if name in self.names:
            return call(f"tl.{name}", *node.args, propagate_nan=ast.parse("tl.PropagateNan.ALL", mode="eval").body)
        match node.args:
            case [shape, ast.Constant(value=0), kind] if name == "tl.full":
                return call("tl.zeros", shape, kind)
        return node


def _joined(body: list[ast.stmt], uses: dict[str, int], bound: dict[str, int]) -> list[ast.stmt]:
    """A sum that is only stored, in the store; what is only added up, in the addition."""
    kept: list[ast.stmt] = []
    for statement in body:
        if isinstance(statement, ast.For | ast.If):
            statement.body = _joined(statement.body, uses, bound)
        for name in reads(statement) if not hasattr(statement, "body") else ():
            maker = next((s for s in reversed(kept) if isinstance(s, ast.Assign) and assigned(s) == [name]), None)
            if maker is None or uses[name] != 1 or bound[name] != 1 or not _may_join(maker.value, name, statement):
                continue
            whole = Replace({name: maker.value}).visit(ast.parse(ast.unparse(statement)).body[0])
            if len(ast.unparse(whole)) <= _WIDTH:
                statement = whole
                kept = [s for s in kept if s is not maker]
        kept.append(statement)
    return kept


def _may_join(value: ast.expr, name: str, statement: ast.stmt) -> bool:
    if isinstance(value, ast.Compare):
        return True
    if isinstance(statement, ast.AugAssign):
        return isinstance(statement.value, ast.Name) and name_of(getattr(value, "func", value)) == "tl.load"
    stored = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and name_of(statement.value.func) == "tl.store"
    return stored and not any(isinstance(n, ast.Call) and name_of(n.func).startswith(("tl.load", "tl.atomic")) for n in ast.walk(value))
