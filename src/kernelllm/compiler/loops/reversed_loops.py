"""Loops from the last step to the first are turned around: forward loops over flipped tensors.

``for t in reversed(range(n))``, ``range(n - 1, -1, -1)`` and ``zip(reversed(x.unbind(0)), ...)``: returns and advantages are computed so.
Lists that grow at their front, or are reversed behind the loop, are stacked as they come and turned around then.
"""

from __future__ import annotations

import ast
import re
from typing import Any

from kernelllm.compiler.emit.ast_tools import names, stored
from kernelllm.compiler.loops.before_after import changed_by, free_name
from kernelllm.core.text import syntax_tree

Statements = list[ast.stmt]


def with_plain_order(over: Any) -> tuple[Any, bool]:
    """What a loop goes over from its first element on, and whether the loop begins with the last."""
    if is_call(over, "reversed") and len(over.args) == 1:
        inner = over.args[0]
        if is_call(inner, "list", "tuple") and len(inner.args) == 1:
            inner = inner.args[0]
        return inner, True
    if is_call(over, "zip") and over.args and all(is_call(a, "reversed") and len(a.args) == 1 for a in over.args):
        return ast.Call(over.func, [a.args[0] for a in over.args], over.keywords), True
    if is_call(over, "range") and len(over.args) == 3 and [ast.unparse(a) for a in over.args[1:]] == ["-1", "-1"]:
        match over.args[0]:
            case ast.BinOp(left=stop, op=ast.Sub(), right=ast.Constant(value=1)):
                return ast.Call(over.func, [stop], []), True
            case ast.BinOp(left=stop, op=ast.Sub(), right=ast.Constant(value=int(behind))) if behind > 1:
                return ast.Call(over.func, [ast.BinOp(stop, ast.Sub(), ast.Constant(behind - 1))], []), True
    if is_call(over, "range") and len(over.args) == 2 and ast.unparse(over.args[0]) == "0":
        return ast.Call(over.func, over.args[1:], []), False
    return over, False


def from_the_first(before: Statements, loop: Any, after: Statements) -> tuple[Statements, Statements] | None:
    """The statements around a loop over ``range(n)`` that meant its steps from the last to the first; changes its body.

    None, and the loop as it was, where the counter is used in another way than to pick slices.
    """
    if not isinstance(loop.target, ast.Name) or not is_call(loop.iter, "range") or len(loop.iter.args) != 1:
        return None
    return _moved(_Turned(loop.target.id, ast.unparse(loop.iter.args[0]), before, loop), before, loop, after)


def from_zero(before: Statements, loop: Any, after: Statements) -> tuple[Statements, Statements] | None:
    """The statements around a loop over ``range(1, n)``, which becomes one over ``range(n - 1)`` on tensors that begin later; as
    :func:`from_the_first`."""
    match loop:
        case ast.For(target=ast.Name(id=counter), iter=ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int(start)), stop])):
            steps = f"{ast.unparse(stop)} - {start}"
        case _:
            return None
    found = _moved(_Turned(counter, steps, before, loop, start), before, loop, after) if start > 0 else None
    if found is not None:
        loop.iter = syntax_tree(f"range({steps})", mode="eval").body
    return found


def _moved(turned: _Turned, before: Statements, loop: Any, after: Statements) -> tuple[Statements, Statements] | None:
    body = [turned.visit(s) for s in syntax_tree("\n".join(map(ast.unparse, loop.body))).body]
    if any(isinstance(n, ast.Name) and n.id == turned.counter and id(n) not in turned.known for s in body for n in ast.walk(s)):
        return None
    fills = [(out, dim) for out, dim in turned.filled if not any(out in names(s) for s in body if out not in _stores_into(s))]
    if len(fills) != len(turned.filled):
        return None
    loop.body = body
    made = syntax_tree("\n".join(f"{name} = {text}" for text, name in turned.slices.items())).body
    behind = syntax_tree("\n".join(f"{out} = {out}.flip({dim})" for out, dim in fills if turned.start is None)).body
    return [*before, *made], [*behind, *after]


class _Turned(ast.NodeTransformer):
    """Slices at the counter become slices of tensors that are turned around, or begin at the counter's ``start``."""

    def __init__(self, counter: str, steps: str, before: Statements, loop: Any, start: int | None = None) -> None:
        self.counter, self.steps, self.start = counter, steps, start
        self.changed = changed_by(loop)
        self.taken = {n for s in (*before, loop) for n in names(s)}
        self.slices: dict[str, str] = {}
        self.filled: list[tuple[str, int]] = []
        self.known: set[int] = set()
        """Nodes of the counter that pick from what is turned around."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        place = indexed_dimension(node, self.counter)
        if place is None:
            self.generic_visit(node)
            return node
        name, dim, offset = place
        offset += self.start or 0
        if offset < 0:
            return node
        if isinstance(node.ctx, ast.Store):
            if offset:
                return node
            self.filled.append((name, dim))
        elif name in self.changed:
            return node
        else:
            text = self._text(name, dim, offset)
            if text not in self.slices:
                self.slices[text] = free_name(f"{name}_back" if self.start is None else f"{name}_from", self.taken)
            node.value = ast.Name(self.slices[text], ast.Load())
        items = getattr(node.slice, "elts", [node.slice])
        at = next(i for i, item in enumerate(items) if self.counter in names(item))
        only = ast.Name(self.counter, ast.Load())
        self.known.add(id(only))
        if isinstance(node.slice, ast.Tuple):
            node.slice.elts[at] = only
        else:
            node.slice = only
        return node

    def _text(self, name: str, dim: int, offset: int) -> str:
        lengths = {f"{name}.shape[{dim}]", f"{name}.size({dim})", f"len({name})" if dim == 0 else ""}
        if not offset and self.start is None and self.steps in lengths:
            return f"{name}.flip({dim})"
        whole = ":, " * dim
        if self.start is not None:
            return f"{name}[{whole}{offset}:{offset} + ({self.steps})]" if offset else f"{name}[{whole}:{self.steps}]"
        return f"{name}[{whole}{offset}:{offset} + {self.steps}].flip({dim})" if offset else f"{name}[{whole}:{self.steps}].flip({dim})"


def indexed_dimension(node: ast.Subscript, counter: str) -> tuple[str, int, int] | None:
    """Name, dimension and offset of ``x[:, t + 1]``; None where it is of another form."""
    items = list(getattr(node.slice, "elts", [node.slice]))
    at = [i for i, item in enumerate(items) if counter in names(item)]
    if not isinstance(node.value, ast.Name) or len(at) != 1 or any(ast.unparse(i) != ":" for i in items[: at[0]]):
        return None
    found = re.fullmatch(rf"{counter}(?: ([+-]) (\d+))?", ast.unparse(items[at[0]]))
    return (node.value.id, at[0], int(f"{found[1] or ''}{found[2] or 0}")) if found else None


def _stores_into(statement: ast.stmt) -> set[str]:
    """The tensor into whose slice a statement puts a value, where it does not read it."""
    target: Any = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    if not isinstance(target, ast.Subscript) or not isinstance(target.value, ast.Name) or target.value.id in names(statement.value):  # type: ignore[attr-defined]
        return set()
    return {target.value.id}


def with_appended_lists(before: Statements, loop: Any, after: Statements) -> Statements:
    """The statements behind the loop where lists grow at their ends alone, are never reversed, and what is stacked of them is turned around
    instead; changes the loop's body. As they are where that cannot be."""
    made = {n: s for s in before if isinstance(s, ast.Assign) and isinstance(s.value, ast.List) for n in stored(s)}
    taken = {n for s in (*before, loop, *after) for n in names(s)}
    for name, first in made.items():
        _name_last(name, first, before, loop, taken)
        grown = [s for s in loop.body if _grows(s, name)]
        uses = sum(isinstance(n, ast.Name) and n.id == name for s in loop.body for n in ast.walk(s))
        if len(grown) != 1 or uses != 1:
            continue
        front = ast.unparse(grown[0]).startswith(f"{name}.insert(")
        begun = {f"{name}_begun{i or ''}": ast.unparse(e) for i, e in enumerate(first.value.elts)}  # type: ignore[attr-defined]
        stacked = _Stacked(name, front, list(begun))
        parts = [stacked.statement(s) for s in syntax_tree("\n".join(map(ast.unparse, after))).body]
        if not stacked.fits or begun.keys() & taken:
            continue
        after = [s for s in parts if s is not None]
        if begun:
            text = [*(f"{new} = {value}" for new, value in begun.items()), f"{name} = []"]
            before[before.index(first) : before.index(first) + 1] = syntax_tree("\n".join(text)).body
        if front:
            loop.body[loop.body.index(grown[0])] = syntax_tree(f"{name}.append({ast.unparse(grown[0].value.args[1])})").body[0]
    return after


def _name_last(name: str, first: Any, before: Statements, loop: Any, taken: set[str]) -> None:
    """``path.append(f(path[-1]))``: the last element has a name of its own; in place."""
    grown = [s for s in loop.body if _grows(s, name) and ".append(" in ast.unparse(s)]
    reads, uses = (sum(ast.unparse(n) == text for n in ast.walk(loop) if isinstance(n, kind))
                   for text, kind in ((f"{name}[-1]", ast.Subscript), (name, ast.Name)))  # fmt: skip
    if len(grown) != 1 or not first.value.elts or not reads or uses != reads + 1:
        return
    last, body = free_name(f"{name}_last", taken), []
    for statement in loop.body:
        text = ast.unparse(statement.value.args[0] if statement is grown[0] else statement)
        text = re.sub(rf"(?<![\w.]){name}\[-1\]", last, text)
        body += syntax_tree(f"{last} = {text}\n{name}.append({last})" if statement is grown[0] else text).body
    loop.body = body
    before += syntax_tree(f"{last} = {ast.unparse(first.value.elts[-1])}").body


def _grows(statement: ast.stmt, name: str) -> bool:
    call: Any = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or ast.unparse(call.func.value) != name:
        return False
    inserts = call.func.attr == "insert" and len(call.args) == 2 and ast.unparse(call.args[0]) == "0"
    return inserts or (call.func.attr == "append" and len(call.args) == 1)


class _Stacked(ast.NodeTransformer):
    """``torch.stack(list[::-1], 1)`` as ``torch.stack(list, 1).flip(1)``. ``front``: the list grew there; ``begun``: what it began with."""

    def __init__(self, name: str, front: bool, begun: list[str]) -> None:
        self.name, self.front, self.begun = name, front, begun
        self.turned, self.fits = False, True

    def statement(self, statement: ast.stmt) -> ast.stmt | None:
        """The statement; None for one that reverses the list alone."""
        text = ast.unparse(statement)
        if text == f"{self.name}.reverse()" or text in [f"{self.name} = {form}" for form in self._reversed()]:
            self.turned = not self.turned
            return None
        return self.visit(statement)  # type: ignore[no-any-return]

    def _reversed(self) -> list[str]:
        return [f"{self.name}[::-1]", f"list(reversed({self.name}))", f"tuple(reversed({self.name}))"]

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if ast.unparse(node.func) != "torch.stack" or not node.args or self.name not in names(node.args[0]):
            self.generic_visit(node)
            return node
        given, begun = ast.unparse(node.args[0]), self.begun
        turned = self.turned != (given in self._reversed())
        if given == f"{self.name}[1:]" and len(begun) == 1 and not (self.front or turned):
            begun = []
        elif given not in (self.name, *self._reversed()):
            self.fits = False
        dims = [*map(ast.unparse, node.args[1:]), *(ast.unparse(k.value) for k in node.keywords if k.arg == "dim")]
        self.fits &= len(dims) == len(node.args) - 1 + len(node.keywords)
        if given == self.name and not (turned or self.front or begun):
            return node
        dim = dims[0] if dims else "0"
        flip, grown = f".flip({dim})", f"torch.stack({self.name}, dim={dim})"
        if begun:
            parts = [f"torch.stack([{', '.join(begun)}], dim={dim})", grown + flip * self.front]
            text = f"torch.cat(({', '.join(parts[::-1] if self.front else parts)}), dim={dim})" + flip * turned
        else:
            text = grown + flip * (turned != self.front)
        return syntax_tree(text, mode="eval").body

    def visit_Name(self, node: ast.Name) -> ast.expr:
        self.fits &= node.id != self.name or not (self.turned or self.front or self.begun)
        return node


def is_call(node: Any, *called: str) -> bool:
    """Whether a node calls one of these names."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in called


__all__ = ["from_the_first", "from_zero", "indexed_dimension", "is_call", "with_appended_lists", "with_plain_order"]
