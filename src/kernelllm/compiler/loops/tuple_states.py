"""A tuple that is carried from step to step, as a cell's two states, becomes one name for each of its elements.

    state = (h, c)                                     state_0, state_1 = h, c
    for t in ...:                                      for t in ...:
        state = self.cell(x[t], state)                     state_0, state_1 = self.cell(x[t], (state_0, state_1))
        ys.append(state[0])                                ys.append(state_0)
"""

from __future__ import annotations

import ast
import re
from typing import Any

from kernelllm.compiler.emit.ast_tools import names, stored
from kernelllm.core.text import syntax_tree

Statements = list[ast.stmt]


def with_names_for_elements(before: Statements, loop: Any, after: Statements) -> tuple[Statements, Any, Statements]:
    """The statements with such names, where a tuple is written out before the loop and the loop sets it as a whole."""
    for statement in [s for s in before if isinstance(s, ast.Assign) and isinstance(s.value, ast.Tuple)]:
        if len(statement.targets) != 1 or not isinstance(statement.targets[0], ast.Name):
            continue
        name, elements = statement.targets[0].id, statement.value.elts  # type: ignore[attr-defined]
        sets = [n for n in stored(loop) if n == name]
        taken = {n for s in (*before, loop, *after) for n in names(s)}
        new = [f"{name}_{i}" for i in range(len(elements))]
        if not sets or sum(name in stored(s) for s in before) != 1 or set(new) & taken or len(elements) < 2:
            continue
        apart = _Apart(name, new)
        before, (loop,), after = ([apart.visit(s) for s in syntax_tree("\n".join(map(ast.unparse, part))).body] if part else []
                                  for part in (before, [loop], after))  # fmt: skip
    return before, loop, after


class _Apart(ast.NodeTransformer):
    def __init__(self, name: str, new: list[str]) -> None:
        self.name, self.new = name, new

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        at = re.fullmatch(rf"{self.name}\[(-?\d+)\]", ast.unparse(node))
        if at and -len(self.new) <= int(at[1]) < len(self.new):
            return ast.Name(self.new[int(at[1])], node.ctx)
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id != self.name:
            return node
        return ast.Tuple([ast.Name(new, node.ctx) for new in self.new], node.ctx)


__all__ = ["with_names_for_elements"]
