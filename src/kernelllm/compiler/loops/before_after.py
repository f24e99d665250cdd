"""The code of a forward before and after its loop becomes methods, ``begin`` and ``finish``, which can be compiled too.

Sizes, lists and moves stay in the forward. Values that a loop gathers are joined before ``finish``.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelllm.compiler.emit.ast_tools import names, stored
from kernelllm.core.text import syntax_tree

BEGIN, FINISH, LENGTHENED = "begin", "finish", "_lengthened"
_JOINS = {"stack", "cat", "concat", "concatenate"}
_MOVES = _JOINS | {
    "zeros", "ones", "empty", "full", "zeros_like", "ones_like", "empty_like", "full_like", "new_zeros", "new_ones", "new_empty",
    "new_full", "to", "size", "dim", "len", "view", "reshape", "flatten", "unflatten", "unsqueeze", "squeeze", "permute", "transpose",
    "expand", "contiguous", "clone", "detach", "unbind", "chunk", "split", "range", "append",
}  # fmt: skip
LONGER = f"""
def {LENGTHENED}(x, dim, steps):
    dim = dim % x.dim()
    return x.unsqueeze(dim).expand(*x.shape[:dim], steps, *x.shape[dim:]).flatten(dim, dim + 1).contiguous()
"""


@dataclass
class BeforeAfter:
    """The statements that stay before and after the loop, and what was taken out of them."""

    before: list[ast.stmt]
    after: list[ast.stmt]
    methods: dict[str, ast.FunctionDef] = field(default_factory=dict)
    """``begin`` and ``finish``, as far as there is something to compute there."""
    entries: dict[str, list[ast.stmt]] = field(default_factory=dict)
    """Statements of the forward's arguments that return a list of the method's."""


def split(given: list[str], before: list[ast.stmt], loop: ast.For, after: list[ast.stmt], sizes: set[str], lists: set[str]) -> BeforeAfter:
    """Take out what computes. ``sizes``, ``lists``: names of dimensions, and of empty lists, that are set before the loop."""
    found = BeforeAfter(before, after)
    _begin(found, given, loop, sizes, lists)
    _finish(found, given, before, loop, sizes, lists)
    return found


def changed_by(loop: ast.For) -> set[str]:
    """Names that a loop sets, and those into whose parts it puts something."""
    parts = [n for n in ast.walk(loop) if isinstance(n, ast.Subscript | ast.Attribute) and isinstance(n.ctx, ast.Store)]
    methods = [n.func for n in ast.walk(loop) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
    called = [method.value for method in methods if _in_place(method.attr)]
    return {*stored(loop), *(_root(part) for part in (*parts, *called))}


def _in_place(method: str) -> bool:
    return method.endswith("_") and not method.endswith("__")


def _root(node: ast.AST) -> str:
    """The name of which a node is a part."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def free_name(name: str, taken: set[str]) -> str:
    """The name, or with a number behind it where it is ``taken``; it is from now on."""
    found = next(new for i in range(len(taken) + 1) if (new := f"{name}{i or ''}") not in taken)
    taken.add(found)
    return found


class NamesReplaced(ast.NodeTransformer):
    """Expressions, as text, in the place of names."""

    def __init__(self, new: Mapping[str, str]) -> None:
        self.new = new

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.new:
            return node
        made: Any = syntax_tree(self.new[node.id], mode="eval").body
        made.ctx = node.ctx
        return made  # type: ignore[no-any-return]


def computes(node: ast.AST, sizes: set[str]) -> bool:
    """Whether it computes: does more than move, make or measure tensors."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.BinOp | ast.UnaryOp | ast.Compare) and not names(inner) <= sizes:
            return True
        if isinstance(inner, ast.Call):
            called = inner.func.attr if isinstance(inner.func, ast.Attribute) else inner.func.id if isinstance(inner.func, ast.Name) else ""
            if called not in _MOVES:
                return True
    return False


def _plain(statements: list[ast.stmt]) -> bool:
    odd = any(isinstance(n, ast.Lambda | ast.Yield | ast.NamedExpr) for s in statements for n in ast.walk(s))
    return not odd and all(isinstance(s, ast.Assign | ast.AugAssign | ast.Return | ast.FunctionDef) or _changes(s) for s in statements)


def _changes(statement: ast.stmt) -> bool:
    """``x.copy_(...)``, and ``if bias is not None: x = x + bias``."""
    if isinstance(statement, ast.If):
        parts = [*statement.body, *statement.orelse]
        return _asks_for_none(statement.test) and all(isinstance(s, ast.Assign | ast.AugAssign) or _changes(s) for s in parts)
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and _in_place(call.func.attr)


def _asks_for_none(test: ast.expr) -> bool:
    """Whether it is known while a forward is traced: whether something is there at all."""
    one = isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Is | ast.IsNot)
    return one and isinstance(test.comparators[0], ast.Constant) and test.comparators[0].value is None  # type: ignore[attr-defined]


def kept_and_changed(statements: list[ast.stmt], after: list[ast.stmt]) -> bool:
    """Whether statements put a tensor into a list that is changed in place ``after`` them: what the list holds changes too."""
    calls = [n for s in statements for n in ast.walk(s) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
    kept = {a.id for call in calls if call.func.attr == "append" for a in call.args if isinstance(a, ast.Name)}  # type: ignore[attr-defined]
    nodes = [n for s in after for n in ast.walk(s)]
    augmented = {n.target.id for n in nodes if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)}
    parts = [n for n in nodes if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store)]
    called = [n.func.value for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and _in_place(n.func.attr)]
    return bool(kept & {*augmented, *(_root(part) for part in (*parts, *called))})


def refuses(statement: ast.stmt) -> bool:
    """``if self.training: raise ...``."""
    return isinstance(statement, ast.If) and not statement.orelse and all(isinstance(s, ast.Raise) for s in statement.body)


def _begin(found: BeforeAfter, given: list[str], loop: ast.For, sizes: set[str], lists: set[str]) -> None:
    first = next((at for at, s in enumerate(found.before) if not refuses(s)), len(found.before))
    checks, before = found.before[:first], found.before[first:]
    kept = [s for s in before if isinstance(s, ast.Assign) and stored(s) and set(stored(s)) <= sizes | lists]
    work = [s for s in before if s not in kept]
    if not _plain(before) or not any(computes(s, sizes) for s in work):
        return
    for statement in kept:  # these statements move behind the call
        later = before[before.index(statement) + 1 :]
        if any(names(statement) & set(stored(s)) for s in later if s in work):
            return
    body = [s for s in before if not set(stored(s)) & lists]
    if any(names(s) & lists for s in body):
        return
    wanted = set().union(*(names(s) for s in (loop, *found.after, *kept)))
    results = [n for n in dict.fromkeys(n for s in work for n in stored(s)) if n in wanted]
    inputs = [n for n in given if any(n in names(s) for s in body)]
    if not results:
        return
    found.methods[BEGIN] = _method(BEGIN, inputs, [*body, *syntax_tree(f"return ({', '.join(results)},)").body])
    found.entries[BEGIN] = syntax_tree(f"return [{', '.join(inputs)}]").body
    found.before = [*checks, *syntax_tree(f"{', '.join(results)}, = self.{BEGIN}({', '.join(inputs)})").body, *kept]


def _finish(found: BeforeAfter, given: list[str], before: list[ast.stmt], loop: ast.For, sizes: set[str], lists: set[str]) -> None:
    joins = _Joins(lists, {*given, *(n for s in (*before, loop, *found.after) for n in names(s))})
    after = [joins.visit(s) for s in syntax_tree("\n".join(ast.unparse(s) for s in found.after)).body]
    steps = _steps(loop.iter)
    further = [s for s in after if isinstance(s, ast.For)]
    if not _plain([s for s in after if s not in further]) or (joins.found and steps is None):
        return
    if not further and not any(computes(s, sizes) for s in after):
        return
    if any(names(s) & lists for s in after):
        return
    used = set().union(*(names(s) for s in after))
    measured = [s for s in before if isinstance(s, ast.Assign) and stored(s) and set(stored(s)) <= sizes] if used & sizes else []
    if any(names(s) & set(stored(later)) for s in measured for later in before[before.index(s) + 1 :]):
        return  # the size would be read off another tensor
    body = [*measured, *after]
    known = {*given, *joins.found, *(n for s in (*before, *loop.body) for n in stored(s))} - set().union(*map(set, map(stored, measured)))
    inputs = [n for n in sorted(known) if any(n in names(s) for s in body) and not _set_first(n, body)]
    found.methods[FINISH] = _method(FINISH, inputs, body)
    joined = [s for name, (_, text) in joins.found.items() for s in syntax_tree(f"{name} = {text}").body]
    longer = [s for name, (dim, _) in joins.found.items() for s in syntax_tree(f"{name} = {LENGTHENED}({name}, {dim}, {steps})").body]
    first = syntax_tree(f"{ast.unparse(loop.target)} = {first_of(loop.iter)}").body
    handed = syntax_tree(f"return [{', '.join(inputs)}]").body
    found.entries[FINISH] = [*before, *first, *loop.body, *joined, *longer, *handed]
    found.after = [*joined, *syntax_tree(f"return self.{FINISH}({', '.join(inputs)})").body]


def _set_first(name: str, body: list[ast.stmt]) -> bool:
    for statement in body:
        nodes = [*ast.walk(statement)]
        changed = [n.target for n in nodes if isinstance(n, ast.AugAssign)]
        if any(isinstance(n, ast.Name) and n.id == name and (isinstance(n.ctx, ast.Load) or n in changed) for n in nodes):
            return False
        if isinstance(statement, ast.For) and name in stored(statement.target):
            return True
        if isinstance(statement, ast.If | ast.For) and name in stored(statement):  # which may leave it as it is
            return False
        if name in stored(statement):
            return True
    return False


def _method(name: str, inputs: list[str], body: list[ast.stmt]) -> ast.FunctionDef:
    made = syntax_tree(f"def {name}({', '.join(['self', *inputs])}): pass").body[0]
    assert isinstance(made, ast.FunctionDef)
    made.body = syntax_tree("\n".join(ast.unparse(s) for s in body)).body
    return made


def _steps(over: ast.expr) -> str | None:
    """How many steps a loop takes, as an expression of what it goes over."""
    if isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.func.id in ("range", "reversed"):
        if over.func.id == "reversed":
            return _steps(over.args[0])
        ends = [ast.unparse(a) for a in over.args]
        return ends[0] if len(ends) == 1 else f"({ends[1]}) - ({ends[0]})" if len(ends) == 2 else None
    if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and over.func.attr == "unbind":
        dim = ast.unparse(over.args[0]) if over.args else ast.unparse(over.keywords[0].value) if over.keywords else "0"
        return f"{ast.unparse(over.func.value)}.shape[{dim}]"
    return f"{over.id}.shape[0]" if isinstance(over, ast.Name) else None


def first_of(over: ast.expr) -> str:
    """The loop variable's value in the first step, as an expression that fixes no size."""
    if isinstance(over, ast.Call) and isinstance(over.func, ast.Name):
        if over.func.id == "range":
            return ast.unparse(over.args[0]) if len(over.args) > 1 else "0"
        inner = over.args[0] if over.func.id == "reversed" and over.args else None
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id == "range" and len(inner.args) < 3:
            return f"({ast.unparse(inner.args[-1])}) - 1"
    if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and over.func.attr == "unbind":
        return f"{ast.unparse(over)}[0]"
    return f"{over.id}[0]" if isinstance(over, ast.Name) else f"next(iter({ast.unparse(over)}))"


class _Joins(ast.NodeTransformer):
    """Joined lists become names; ``found``: name to (dimension, the call)."""

    def __init__(self, lists: set[str], taken: set[str]) -> None:
        self.lists, self.taken = lists, taken
        self.found: dict[str, tuple[str, str]] = {}

    def visit_Call(self, node: ast.Call) -> ast.expr:
        joins = isinstance(node.func, ast.Attribute) and node.func.attr in _JOINS and ast.unparse(node.func.value) == "torch"
        if joins and node.args and isinstance(node.args[0], ast.Name) and node.args[0].id in self.lists:
            dims = [ast.unparse(a) for a in node.args[1:]] + [ast.unparse(k.value) for k in node.keywords if k.arg in ("dim", "axis")]
            name = next(name for i in range(1, len(self.taken) + 2) if (name := f"joined_{i}") not in self.taken)
            self.taken.add(name)
            self.found[name] = (dims[0] if dims else "0", ast.unparse(node))
            return ast.Name(name, ast.Load())
        self.generic_visit(node)
        return node
