"""Slices that a loop writes one by one and reads where the step before wrote them: they go from step to step by names of their own.

    for i in range(1, n):                      c_1 = c[:, 0]
        c[:, i] = x[:, i] / c[:, i - 1]        for i in range(1, n):
                                                   c_1 = x[:, i] / c_1
                                                   c_steps.append(c_1)
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

from kernelllm.compiler.emit.ast_tools import names, stored
from kernelllm.compiler.loops.before_after import free_name
from kernelllm.compiler.loops.reversed_loops import indexed_dimension, is_call
from kernelllm.core.text import syntax_tree

Statements = list[ast.stmt]
LOOPS = "_loop_operators"
"""The name of the module ``loop_function`` in a problem's text."""
_FRESH = re.compile(r".*\.(clone|contiguous)\(.*\)|torch\.(zeros|ones|empty|full)(_like)?\(.*\)|\w+\.new_(zeros|ones|empty|full)\(.*\)")


@dataclass(frozen=True)
class Count:
    """What a loop counts: from ``start`` to the one before ``stop``, or from there back to ``start``."""

    counter: str
    start: str
    stop: str
    backwards: bool


def count_of(loop: Any) -> Count | None:
    """What a loop counts; None where it is no count by ones."""
    over, backwards = loop.iter, False
    if is_call(over, "reversed") and len(over.args) == 1:
        over, backwards = over.args[0], True
    if not isinstance(loop.target, ast.Name) or not is_call(over, "range") or over.keywords:
        return None
    given = [ast.unparse(a) for a in over.args]
    if len(given) == 3 and given[2] == "-1" and not backwards:
        return Count(loop.target.id, _plus_one(given[1]), _plus_one(given[0]), True)
    if len(given) > 2:
        return None
    return Count(loop.target.id, given[0] if len(given) == 2 else "0", given[-1], backwards)


def _plus_one(text: str) -> str:
    found = re.fullmatch(r"(?:(.+) - )?(-?\d+)", text)
    if found is None:
        return f"({text}) + 1"
    if found[1] is None:
        return str(int(found[2]) + 1)
    rest = int(found[2]) - 1
    return f"{found[1]} - {rest}" if rest else found[1]


def with_last_elements(before: Statements, loop: Any) -> None:
    """``c[i - 1]`` of a list that grows by one a step as ``c[-1]``; in place."""
    count = count_of(loop)
    grown = {n for s in loop.body for n in names(s) if f"{n}.append(" in ast.unparse(s)}
    begun = {n: len(s.value.elts) for s in before if isinstance(s, ast.Assign) and isinstance(s.value, ast.List) for n in stored(s)}
    for name in grown & begun.keys():
        if count is None or count.backwards or count.start != str(begun[name]) or not begun[name]:
            continue
        for node in ast.walk(loop):
            if isinstance(node, ast.Subscript) and ast.unparse(node) == f"{name}[{count.counter} - 1]":
                node.slice = syntax_tree("-1", mode="eval").body


def with_tables(before: Statements, loop: Any) -> Statements:
    """The statements before a loop with a tensor of all elements of each list whose elements it reads by its counter; changes the loop."""
    count = count_of(loop)
    lists = {n for s in before if isinstance(s, ast.Assign) and isinstance(s.value, ast.List) for n in stored(s)}
    touched = {n.value.id for n in ast.walk(loop) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)}
    taken = {n for s in (*before, loop) for n in names(s)}
    for name in sorted(lists - touched if count else ()):
        parts: list[Any] = [n for n in ast.walk(loop) if isinstance(n, ast.Subscript) and ast.unparse(n.value) == name]
        uses = sum(isinstance(n, ast.Name) and n.id == name for n in ast.walk(loop))
        if not parts or uses != len(parts) or not all(count and count.counter in names(n.slice) for n in parts):
            continue
        table = free_name(f"{name}_table", taken)
        for node in parts:
            node.value = ast.Name(table, ast.Load())
        before = [*before, *syntax_tree(f"{table} = {LOOPS}.stacked({name})").body]
    return before


def with_states_of_slices(before: Statements, loop: Any, after: Statements) -> tuple[Statements, Statements]:
    """The statements around a loop whose slices in turn are states; changes its body. As they are where there is none."""
    count = count_of(loop)
    for name in dict.fromkeys(n for s in loop.body for n in _written(s)) if count else ():
        slices = _Slices(name, count, before, loop)  # type: ignore[arg-type]
        if slices.fit():
            before, after = slices.states(before, loop, after)
    return before, after


def _written(statement: ast.stmt) -> list[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target] if isinstance(statement, ast.AugAssign) else []
    return [t.value.id for t in targets if isinstance(t, ast.Subscript) and isinstance(t.value, ast.Name)]


class _Slices:
    """Slices of one tensor that a loop writes."""

    def __init__(self, name: str, count: Count, before: Statements, loop: Any) -> None:
        self.name, self.count, self.loop = name, count, loop
        self.taken = {n for s in (*before, loop) for n in names(s)}
        self.made = [s for s in before if name in stored(s)]
        self.before = before
        self.writes = [i for i, s in enumerate(loop.body) if name in _written(s)]
        self.dim = self.offset = self.most = 0

    def fit(self) -> bool:
        """Whether they are written once a step, of a tensor that nothing else shows, and read by the counter alone."""
        value = ast.unparse(self.made[-1].value) if self.made and isinstance(self.made[-1], ast.Assign) else ""
        shown = [s for s in self.before if isinstance(s, ast.Assign) and s not in self.made and _root(s.value) == self.name]
        if len(self.writes) != 1 or not _FRESH.fullmatch(value) or shown:
            return False
        statement = self.loop.body[self.writes[0]]
        target: Any = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
        place = indexed_dimension(target, self.count.counter)
        if place is None or not _plain(target) or (isinstance(statement, ast.Assign) and len(statement.targets) > 1):
            return False
        _, self.dim, self.offset = place
        parts = [n for n in ast.walk(self.loop) if isinstance(n, ast.Subscript) and ast.unparse(n.value) == self.name]
        uses = sum(isinstance(n, ast.Name) and n.id == self.name for n in ast.walk(self.loop))
        places = [indexed_dimension(n, self.count.counter) for n in parts]
        return uses == len(parts) and all(p is not None and p[1] == self.dim and _plain(n) for p, n in zip(places, parts, strict=True))

    def states(self, before: Statements, loop: Any, after: Statements) -> tuple[Statements, Statements]:
        at, statement = self.writes[0], loop.body[self.writes[0]]
        self.given, self.steps = free_name(f"{self.name}_given", self.taken), free_name(f"{self.name}_steps", self.taken)
        early = [self._read(s, behind=0) for s in loop.body[:at]]
        value = statement.value
        if isinstance(statement, ast.AugAssign):
            load = syntax_tree(ast.unparse(statement.target), mode="eval").body
            value = ast.BinOp(load, statement.op, statement.value)
        value = self._read(syntax_tree(ast.unparse(value), mode="eval").body, behind=0)
        late = [self._read(s, behind=1) for s in loop.body[at + 1 :]]
        last = [f"{self.name}_{k}" for k in range(1, self.most + 1)]
        like = last[0] if last else f"{self.given}[{':, ' * self.dim}{self._at(self.offset)}]"
        new = free_name(f"{self.name}_new", self.taken)
        text = [f"{new} = {LOOPS}.as_slice({ast.unparse(value)}, {like})"]
        text += [f"{one} = {other}" for one, other in zip(reversed(last), [*reversed(last[:-1]), new], strict=True)] if last else []
        loop.body = [*early, *syntax_tree("\n".join([*text, f"{self.steps}.append({new})"])).body, *late]
        count = self.count
        first = [f"({count.stop}) - 1 + {self.offset + k}" if count.backwards else f"({count.start}) + {self.offset - k}"
                 for k in range(1, self.most + 1)]  # fmt: skip
        starts = [f"{one} = {LOOPS}.slice_at({self.name}, {self.dim}, {place})" for one, place in zip(last, first, strict=True)]
        begun = syntax_tree("\n".join([f"{self.given} = {self.name}", f"{self.steps} = []", *starts])).body
        done = f"{LOOPS}.filled({self.given}, {self.dim}, ({count.start}) + {self.offset}, {self.steps}, {count.backwards})"
        return [*before, *begun], [*syntax_tree(f"{self.name} = {done}").body, *after]

    def _at(self, offset: int) -> str:
        return self.count.counter if not offset else f"{self.count.counter} {'+' if offset > 0 else '-'} {abs(offset)}"

    def _read(self, node: Any, behind: int) -> Any:
        """With the slices as names: ``behind``: 1 for what reads them after the step has written its own."""
        slices = self

        class Reads(ast.NodeTransformer):
            def visit_Subscript(self, node: ast.Subscript) -> Any:
                place = indexed_dimension(node, slices.count.counter)
                if place is None or place[0] != slices.name:
                    return self.generic_visit(node)
                back = (slices.offset - place[2]) * (-1 if slices.count.backwards else 1) + behind
                if back <= 0:
                    node.value = ast.Name(slices.given, ast.Load())
                    return node
                slices.most = max(slices.most, back)
                return ast.Name(f"{slices.name}_{back}", ast.Load())

        return Reads().visit(node)


def _plain(target: ast.Subscript) -> bool:
    """Whether all else than the counter is taken whole."""
    items = getattr(target.slice, "elts", [target.slice])
    return sum(ast.unparse(item) not in (":", "...") for item in items) == 1


def _root(node: Any) -> str:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


__all__ = ["LOOPS", "Count", "count_of", "with_last_elements", "with_states_of_slices", "with_tables"]
