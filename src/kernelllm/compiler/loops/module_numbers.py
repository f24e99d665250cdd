"""Local names of the module's numbers are replaced in a loop: ``heads, dim = self.heads, self.dim``.

A step is a function of tensors. A number among its inputs would not be one.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from kernelllm.compiler.emit.ast_tools import names, stored
from kernelllm.compiler.loops.before_after import NamesReplaced
from kernelllm.core.text import syntax_tree

Statements = list[ast.stmt]
_MANY = 64
"""Steps."""


def with_numbers_written_out(
    before: Statements, loop: ast.For, after: Statements, layers: Callable[[], Mapping[str, Any]]
) -> tuple[Statements, ast.For, Statements]:
    """The statements with what such names stand for in their place. ``layers``: the problem's modules, by what the forward calls them."""
    if not any("self." in ast.unparse(s) for s in before if isinstance(s, ast.Assign)):
        return before, loop, after
    count = [n for s in (*before, loop, *after) for n in stored(s)]
    known: dict[str, str] = {}
    kept: Statements = []
    for statement in before:
        pairs = _pairs(statement)
        numbers = {n: v for n, v in pairs if count.count(n) == 1 and _is_number(v, known, layers)}
        if not numbers:
            kept.append(statement)
            continue
        inside = NamesReplaced(known)
        known = known | {n: f"({ast.unparse(inside.visit(syntax_tree(ast.unparse(v), mode='eval').body))})" for n, v in numbers.items()}
        kept += syntax_tree("\n".join(f"{n} = {ast.unparse(v)}" for n, v in pairs if n not in numbers)).body
    if not known:
        return before, loop, after
    replaced = NamesReplaced(known)
    text = [[ast.unparse(replaced.visit(s)) for s in syntax_tree("\n".join(map(ast.unparse, part))).body] for part in (kept, [loop], after)]
    first, [middle], last = (syntax_tree("\n".join(part)).body for part in text)
    assert isinstance(middle, ast.For)
    return first, middle, last


def counts_many(loop: ast.For, layers: Callable[[], Mapping[str, Any]]) -> bool:
    """Whether a loop takes so many steps, by a number of the module or a literal, that the unrolled one would be long to write and read."""
    over = loop.iter
    if not isinstance(over, ast.Call) or ast.unparse(over.func) != "range" or len(over.args) != 1:
        return False
    count: Any = over.args[0]
    if isinstance(count, ast.Attribute) and ast.unparse(count.value) == "self":
        return _whole(getattr(layers().get("self"), count.attr, 0)) >= _MANY
    return isinstance(count, ast.Constant) and _whole(count.value) >= _MANY


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _pairs(statement: ast.stmt) -> list[tuple[str, ast.expr]]:
    """Names and what they are set to; none where a statement does more than that."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return []
    target, value = statement.targets[0], statement.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        pairs = list(zip(target.elts, value.elts, strict=True))
    else:
        pairs = [(target, value)]
    plain = all(isinstance(t, ast.Name) for t, _ in pairs) and not set(stored(target)) & names(value)
    return [(t.id, v) for t, v in pairs if isinstance(t, ast.Name)] if plain else []


def _is_number(node: ast.expr, known: Mapping[str, str], layers: Callable[[], Mapping[str, Any]]) -> bool:
    """Whether an expression is computed of numbers alone that the module has; one at least."""
    if isinstance(node, ast.BinOp):
        sides = [s for s in (node.left, node.right) if not isinstance(s, ast.Constant)]
        return bool(sides) and all(_is_number(s, known, layers) for s in sides)
    if isinstance(node, ast.Name):
        return node.id in known
    if isinstance(node, ast.Call):
        plain = ast.unparse(node.func) in ("math.sqrt", "int", "float") and not node.keywords
        return plain and bool(node.args) and all(_is_number(a, known, layers) for a in node.args)
    if not isinstance(node, ast.Attribute) or names(node) != {"self"}:
        return False
    above, _, attribute = ast.unparse(node).rpartition(".")
    return isinstance(getattr(layers().get(above), attribute, None), int | float)


__all__ = ["with_numbers_written_out"]
