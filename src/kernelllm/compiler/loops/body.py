"""The body of a loop is outlined as a function: what it reads becomes its inputs, and what is read later becomes its results."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

from kernelllm.compiler.emit.ast_tools import names, stored
from kernelllm.core.text import syntax_tree

STEP = "step"
_UNFIT = (ast.Break, ast.Continue, ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal, ast.Try, ast.With, ast.Delete,
          ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.NamedExpr)  # fmt: skip


@dataclass
class OutlinedLoop:
    body: list[ast.stmt]
    """The function's statements, with its return."""
    loop: ast.For
    """The loop with a call of the function as its body."""
    inputs: list[str]
    values: list[str]
    """Expressions in the loop for the inputs."""
    carried: tuple[tuple[int, int], ...]
    """Positions of what goes from one step to the next, among inputs and results."""


class Outliner:
    """Takes the loop of a forward apart. ``given``: the forward's arguments. ``inside``: the step stays there and sees its sizes.

    ``many``: the loop has many steps, and need not go over a dimension.
    """

    def __init__(
        self, given: list[str], before: list[ast.stmt], loop: ast.For, after: list[ast.stmt], *, inside: bool = False, many: bool = False
    ) -> None:
        self.before, self.loop, self.after, self.inside, self.many = before, loop, after, inside, many
        self.outer = {*given, *(n for s in before for n in stored(s))}
        self.sizes: set[str] = set()
        for statement in before:
            if isinstance(statement, ast.Assign) and is_size(statement.value, self.sizes):
                self.sizes |= set(stored(statement))
        made = [s for s in before if isinstance(s, ast.Assign) and isinstance(s.value, ast.List)]
        self.lists = {n for s in made for n in stored(s)}
        self.empty = {n for s in made if not s.value.elts for n in stored(s)}  # type: ignore[attr-defined]
        self.slices: dict[str, str] = {}
        self.filled: set[str] = set()
        """Tensors into whose slices the loop puts results; a step must not read them after that."""
        self.stale = False
        self.results: list[tuple[ast.stmt, str]] = []
        """What the loop does with a result of a step, and the result's name."""

    def done(self) -> OutlinedLoop | None:
        counter = self._counter()
        if counter is None or self.loop.orelse or any(isinstance(n, _UNFIT) for s in self.loop.body for n in ast.walk(s)):
            return None
        changed = {n for s in self.loop.body for n in stored(s)}
        taken = self.outer | {n for s in self.loop.body for n in names(s)}
        slicer = _Slicer(counter, self.outer - changed - self.lists, changed, self.slices, taken) if self._counts() else None
        body = []
        for statement in syntax_tree("\n".join(ast.unparse(s) for s in self.loop.body)).body:
            body.append(self._result(statement, slicer, changed))
        body = body if self.inside else [*self._measured(body, counter), *body]
        inputs = self._read_first(body, counter)
        if self.stale or not self._plain(body, counter):
            return None
        carried = [n for n in sorted(changed) if n in inputs or any(n in names(s) for s in self.after)]
        results = [*carried, *(name for _, name in self.results)]
        if not results:
            return None
        body.append(syntax_tree(f"return ({', '.join(results)},)").body[0])
        by_slice = {name: text for text, name in self.slices.items()}
        values = [by_slice.get(name, name) for name in inputs]
        call = syntax_tree(f"{', '.join(results)}, = self.{STEP}({', '.join(values)})").body[0]
        loop = ast.For(self.loop.target, self.loop.iter, [call, *(s for s, _ in self.results)], [])
        return OutlinedLoop(body, loop, inputs, values, tuple((inputs.index(n), i) for i, n in enumerate(carried) if n in inputs))

    def _measured(self, body: list[ast.stmt], counter: str) -> list[ast.stmt]:
        """Statements that read the sizes in a step off what it is given; not the number of steps."""
        used, changed = ({n for s in body for n in of(s)} for of in (names, stored))
        found = []
        for name in sorted(used & self.sizes - names(self.loop.iter)):
            place = _dimension(name, self.before)
            if place is None:
                continue
            tensor, dim = place
            given = [(text, part) for text, part in self.slices.items() if text.startswith(f"{tensor}[")]
            places = [(part, at) for text, part in given if (at := _dim_of_slice(text, counter, dim)) is not None]
            places += [(tensor, dim)] if not given and (tensor in used or tensor not in changed) else []
            if places:
                found.append(syntax_tree(f"{name} = {places[0][0]}.shape[{places[0][1]}]").body[0])
                self.sizes.discard(name)
        return found

    def _counts(self) -> bool:
        return any(isinstance(n, ast.Name) and n.id == "range" for n in ast.walk(self.loop.iter))

    def _counter(self) -> str | None:
        """The loop's variable, where it goes over a dimension."""
        if not isinstance(self.loop.target, ast.Name):
            return None
        over = self.loop.iter
        if self._counts():
            return self.loop.target.id if self.inside or self.many or _speaks_of_sizes(over, self.sizes) else None
        if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and over.func.attr == "unbind":
            over = over.func.value
        return self.loop.target.id if isinstance(over, ast.Name) and over.id in self.outer - self.lists else None

    def _result(self, statement: ast.stmt, slicer: _Slicer | None, changed: set[str]) -> ast.stmt:
        """The statement in a step; what it appends to a list or puts into a slice becomes a result.

        ``changed``: names that the step sets.
        """
        kept: ast.stmt | None = None
        value: ast.expr | None = None
        name = f"result_{len(self.results) + 1}"
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            call, on = statement.value, statement.value.func
            appends = isinstance(on, ast.Attribute) and on.attr == "append" and isinstance(on.value, ast.Name) and on.value.id in self.lists
            if appends and len(call.args) == 1:
                value = call.args[0]
                kept = syntax_tree(f"{ast.unparse(on)}({name})").body[0]
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Subscript):
            target = statement.targets[0]
            if isinstance(target.value, ast.Name) and target.value.id in self.outer - self.lists:
                value = statement.value
                kept = syntax_tree(f"{ast.unparse(target)} = {name}").body[0]
                self.stale |= bool(names(target.slice) & changed)
        self.stale |= bool(names(value or statement) & self.filled)
        if kept is None or value is None:
            return slicer.visit(statement) if slicer else statement
        self.results.append((kept, name))
        if isinstance(kept, ast.Assign):
            self.filled |= names(kept.targets[0].value)  # type: ignore[attr-defined]
        made = syntax_tree(f"{name} = {ast.unparse(value)}").body[0]
        return slicer.visit(made) if slicer else made

    def _plain(self, body: list[ast.stmt], counter: str) -> bool:
        """Nothing in the step reaches out of it, and the counter is not computed with."""
        for node in (n for s in body for n in ast.walk(s)):
            if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
                return False
            taken = self.lists if self.inside else self.lists | self.sizes
            if isinstance(node, ast.Name) and (node.id in taken or (node.id == counter and self._counts())):
                return False
        return True

    def _read_first(self, body: list[ast.stmt], counter: str) -> list[str]:
        """Names from outside that the step reads before it has set them, in order."""
        outside = {*self.outer, *self.slices.values(), counter}
        known: set[str] = set()
        found: list[str] = []
        for statement in body:
            reads = [n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
            if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
                reads.append(statement.target.id)
            maybe = set() if isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr) else set(stored(statement))
            found += [n for n in dict.fromkeys([*reads, *sorted(maybe)]) if n in outside - known and n not in found]
            known |= set(stored(statement)) - maybe
        return found


class _Slicer(ast.NodeTransformer):
    """Slices of outer tensors at the counter become names, where nothing else in them is set in the step (``changed``)."""

    def __init__(self, counter: str, outer: set[str], changed: set[str], slices: dict[str, str], taken: set[str]) -> None:
        self.counter, self.outer, self.changed, self.slices, self.taken = counter, outer, changed, slices, taken

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        of, loads = node.value, isinstance(node.ctx, ast.Load)
        at = names(node.slice)
        if isinstance(of, ast.Name) and of.id in self.outer and self.counter in at and not at & self.changed and loads:
            text = ast.unparse(node)
            if text not in self.slices:
                name = f"{of.id}_{self.counter}"
                while name in self.taken:
                    name += "_"
                self.taken.add(name)
                self.slices[text] = name
            return ast.Name(self.slices[text], ast.Load())
        self.generic_visit(node)
        return node


def _dimension(name: str, before: list[ast.stmt]) -> tuple[str, int] | None:
    """The tensor and the dimension that a name is the size of, where ``b, t = x.shape`` or ``t = x.size(1)`` alone sets it and ``x`` stays
    what it is.
    """
    made = [s for s in before if name in stored(s)]
    if len(made) != 1 or not isinstance(made[0], ast.Assign):
        return None
    target, value = made[0].targets[0], made[0].value
    if single := re.fullmatch(r"(\w+)\.(?:size\((\d+)\)|shape\[(\d+)\])", ast.unparse(value)):
        alone = isinstance(target, ast.Name) and not any(single[1] in stored(s) for s in before[before.index(made[0]) :])
        return (single[1], int(single[2] or single[3])) if alone else None
    whole = value.func if isinstance(value, ast.Call) and not value.args else value
    if not isinstance(whole, ast.Attribute) or whole.attr not in ("shape", "size") or not isinstance(whole.value, ast.Name):
        return None
    if not isinstance(target, ast.Tuple) or any(whole.value.id in stored(s) for s in before[before.index(made[0]) :]):
        return None
    items = [ast.unparse(e) for e in target.elts]
    return (whole.value.id, items.index(name)) if items.count(name) == 1 and not any(i.startswith("*") for i in items) else None


def _dim_of_slice(text: str, counter: str, dim: int) -> int | None:
    """Where a tensor's dimension is in ``x[:, t, None]``; None for the one that is picked from, and where more is picked."""
    index: Any = syntax_tree(text, mode="eval").body
    items = [ast.unparse(i) for i in getattr(index.slice, "elts", [index.slice])]
    if items.count(counter) != 1 or set(items) - {":", "None", counter}:
        return None
    at, seen = 0, 0
    for item in [*items, *[":"] * (dim + 1)]:
        if item != "None" and seen == dim:
            return None if item == counter else at
        seen += item != "None"
        at += item != counter
    return None


def is_size(value: ast.expr, sizes: set[str]) -> bool:
    """Whether it is a dimension, several, or computed from such alone."""
    match value:
        case ast.Attribute(attr="shape") | ast.Call(func=ast.Attribute(attr="size")) | ast.Call(func=ast.Name(id="len")):
            return True
        case ast.Name():
            return value.id in sizes
        case ast.Subscript():
            return is_size(value.value, sizes)
        case ast.BinOp():
            parts = [p for p in (value.left, value.right) if not isinstance(p, ast.Constant)]
            return bool(parts) and all(is_size(p, sizes) for p in parts)
        case ast.Tuple():
            return all(is_size(p, sizes) for p in value.elts)
    return False


def _speaks_of_sizes(node: ast.AST, sizes: set[str]) -> bool:
    """Whether it reads a tensor's dimensions, itself or by the names ``sizes``."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and inner.attr in ("size", "shape"):
            return True
        if isinstance(inner, ast.Name) and (inner.id in sizes or inner.id == "len"):
            return True
    return False
