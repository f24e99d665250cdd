"""Hoisting: products of what a loop reads at its steps are computed for all steps at once, ahead of the loop: ``self.gates(x[:, t])``.

Cells of torch become what they compute, so that one of their two products is such a one.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from kernelllm.compiler.emit.ast_tools import names, stored
from kernelllm.compiler.loops.before_after import changed_by, free_name
from kernelllm.compiler.loops.reversed_loops import is_call
from kernelllm.core.text import syntax_tree

Statements = list[ast.stmt]
_LINEAR = "torch.nn.functional.linear"
_CELLS = {
    "GRUCell": (
        "{r}, {z}, {n} = {given}.chunk(3, -1)",
        "{rs}, {zs}, {ns} = {linear}({h}, {cell}.weight_hh, {cell}.bias_hh).chunk(3, -1)",
        "{n} = torch.tanh({n} + torch.sigmoid({r} + {rs}) * {ns})",
        "{h} = {n} + torch.sigmoid({z} + {zs}) * ({h} - {n})",
    ),
    "LSTMCell": (
        "{r}, {z}, {n}, {rs} = ({given} + {linear}({h}, {cell}.weight_hh, {cell}.bias_hh)).chunk(4, -1)",
        "{c} = torch.sigmoid({z}) * {c} + torch.sigmoid({r}) * torch.tanh({n})",
        "{h} = torch.sigmoid({rs}) * torch.tanh({c})",
    ),
}
"""What torch's documentation of each cell says that it computes, statement by statement."""


def with_products_ahead(before: Statements, loop: Any, layers: Callable[[], Mapping[str, Any]]) -> Statements:
    """The statements before a loop over ``range(...)``, with such products behind them; changes the loop's body.

    ``layers``: the problem's modules, by what the forward calls them.
    """
    if not isinstance(loop.target, ast.Name) or not is_call(loop.iter, "range") or "self." not in ast.unparse(loop):
        return before
    found = _Products(loop, before, layers)
    body = [made for s in syntax_tree("\n".join(map(ast.unparse, loop.body))).body for made in found.statements(s)]
    if not found.made:
        return before
    loop.body = body
    return [*before, *syntax_tree("\n".join(f"{name} = {text}" for text, name in found.made.items())).body]


def is_matrix(node: Any, layers: Callable[[], Mapping[str, Any]]) -> bool:
    """Whether an expression is a matrix of the module's parameters, or turned."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "t" and not node.args:
        node = node.func.value
    if isinstance(node, ast.Attribute) and node.attr in ("T", "mT"):
        node = node.value
    above, _, attribute = ast.unparse(node).rpartition(".")
    parameter = getattr(layers().get(above), attribute, None) if above.startswith("self") else None
    return getattr(parameter, "ndim", 0) == 2


class _Products(ast.NodeTransformer):
    def __init__(self, loop: Any, before: Statements, layers: Callable[[], Mapping[str, Any]]) -> None:
        self.counter, self.layers = loop.target.id, layers
        self.changed = changed_by(loop)
        self.taken = {n for s in (*before, loop) for n in names(s)}
        self.made: dict[str, str] = {}
        """Name of a product for all steps, by its text."""
        single = [s for s in loop.body if isinstance(s, ast.Assign) and len(s.targets) == 1 and isinstance(s.targets[0], ast.Name)]
        counts = [n for s in loop.body for n in stored(s)]
        self.slices = {ast.unparse(s.targets[0]): s.value for s in single if counts.count(ast.unparse(s.targets[0])) == 1}
        """What names stand for that are set once in a step."""

    def statements(self, statement: ast.stmt) -> Statements:
        """The statement with products taken out, or those that a cell consists of."""
        return self._cell(statement) or [self.visit(statement)]

    def visit_Call(self, node: ast.Call) -> ast.expr:
        called = ast.unparse(node.func)
        if node.args and not node.keywords and (place := self._place(node.args[0])):
            name, index = place
            rest = [ast.unparse(a) for a in node.args[1:]]
            fixed = not any(names(a) & self.changed for a in node.args[1:])
            linear = called in (_LINEAR, "F.linear", "nn.functional.linear") and fixed
            if linear or (not rest and type(self._layer(called)).__name__ == "Linear"):
                return self._ahead(f"{called}({', '.join([name, *rest])})", index)
        self.generic_visit(node)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        if isinstance(node.op, ast.MatMult) and (place := self._place(node.left)) and is_matrix(node.right, self.layers):
            return self._ahead(f"{place[0]} @ {ast.unparse(node.right)}", place[1])
        self.generic_visit(node)
        return node

    def _layer(self, text: str) -> Any:
        return self.layers().get(text) if text.startswith("self") else None

    def _place(self, node: ast.expr) -> tuple[str, str] | None:
        """The tensor and the index of ``x[:, t]``, of which all steps are there before the loop."""
        if isinstance(node, ast.Name) and node.id in self.slices:
            node = self.slices[node.id]
        if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name) or node.value.id in self.changed:
            return None
        items = [ast.unparse(i) for i in getattr(node.slice, "elts", [node.slice])]
        if items.count(self.counter) != 1 or set(items) - {":", "...", self.counter} or items[-1] == "..." or items[0] == "...":
            return None
        if items.index(self.counter) > 1:  # the counter may index the dimension that a product sums over
            return None
        return node.value.id, ", ".join(items)

    def _ahead(self, text: str, index: str) -> ast.expr:
        if text not in self.made:
            self.made[text] = free_name("ahead", self.taken)
        return syntax_tree(f"{self.made[text]}[{index}]", mode="eval").body

    def _cell(self, statement: ast.stmt) -> Statements:
        """What ``h = self.cell(x[:, t], h)`` computes; nothing where it is something else."""
        call: Any = statement.value if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
        if not isinstance(call, ast.Call) or len(call.args) != 2 or call.keywords or not (place := self._place(call.args[0])):
            return []
        cell, target, state = ast.unparse(call.func), ast.unparse(statement.targets[0]).strip("()"), ast.unparse(call.args[1]).strip("()")  # type: ignore[attr-defined]
        kind = type(self._layer(cell)).__name__
        carried = [part.strip() for part in target.split(",")]
        fits = len(carried) == (2 if kind == "LSTMCell" else 1) and all(c.isidentifier() for c in carried)
        if kind not in _CELLS or target != state or not fits:
            return []
        given = self._ahead(f"{_LINEAR}({place[0]}, {cell}.weight_ih, {cell}.bias_ih)", place[1])
        parts = {name: free_name(name, self.taken) for name in ("r", "z", "n", "rs", "zs", "ns")}
        parts |= {"h": carried[0], "c": carried[-1], "cell": cell, "linear": _LINEAR, "given": ast.unparse(given)}
        return syntax_tree("\n".join(line.format(**parts) for line in _CELLS[kind])).body


__all__ = ["is_matrix", "with_products_ahead"]
