"""The parts of a loop's step that fission works on: products with the module's matrices, slices at the counter, names set once."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernelllm.compiler.emit.ast_tools import names, stored
from kernelllm.compiler.loops.before_after import free_name
from kernelllm.compiler.loops.chunk_states import steps_in_front
from kernelllm.compiler.loops.hoisted import is_matrix
from kernelllm.compiler.loops.inside_kernel import Unfit, need
from kernelllm.core.text import syntax_tree

LINEAR = "torch.nn.functional.linear"
_LINEARS = (LINEAR, "F.linear", "nn.functional.linear")


class Products:
    """Products with matrices of the module: ``self.layer(x)``, ``F.linear(x, w, b)``, ``x @ self.w``."""

    def __init__(self, layers: Callable[[], Mapping[str, Any]]) -> None:
        self.layers = layers

    def operands(self, node: Any) -> tuple[ast.expr, str, str] | None:
        """What is multiplied, the weight as ``linear`` takes it, and what is added, as text; None where it is no such product."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult) and is_matrix(node.right, self.layers):
            return node.left, f"{ast.unparse(node.right)}.t()", ""
        if not isinstance(node, ast.Call) or not node.args or node.keywords:
            return None
        called = ast.unparse(node.func)
        if called in _LINEARS:
            return node.args[0], ast.unparse(node.args[1]), ast.unparse(node.args[2]) if len(node.args) > 2 else ""
        layer: Any = self.layers().get(called) if called.startswith("self") and len(node.args) == 1 else None
        if type(layer) is not torch.nn.Linear or layer._forward_pre_hooks or layer._forward_hooks:
            return None  # weight norm, for one, makes its weight in a hook
        return node.args[0], f"{called}.weight", "" if layer.bias is None else f"{called}.bias"


class StepSlices(ast.NodeTransformer):
    """Slices at the counter, of tensors that the loop leaves alone. ``found``: names for them, by their text."""

    def __init__(self, counter: str, changed: set[str]) -> None:
        self.counter, self.changed, self.taken = counter, changed, set[str]()
        self.found: dict[str, str] = {}

    def named(self, statement: ast.stmt, taken: set[str]) -> ast.stmt:
        """The statement with names in the place of slices."""
        self.taken = taken
        made: ast.stmt = self.visit(syntax_tree(ast.unparse(statement)).body[0])
        return made

    def without(self, node: ast.expr) -> ast.expr:
        """An expression with constants in the place of slices."""
        return StepSlices(self.counter, self.changed).visit(syntax_tree(ast.unparse(node), mode="eval").body)  # type: ignore[no-any-return]

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        at = names(node.slice)
        if not isinstance(node.value, ast.Name) or node.value.id in self.changed or at != {self.counter} or not _simple(node, self.counter):
            return self.generic_visit(node)
        return ast.Name(self.found.setdefault(ast.unparse(node), free_name("_slice", self.taken)), ast.Load())


def _simple(node: ast.Subscript, counter: str) -> bool:
    """Whether all steps of such a slice are known."""
    try:
        steps_in_front(ast.unparse(node), counter)
    except Unfit:
        return False
    return True


def each_name_once(body: list[ast.stmt], lists: set[str], taken: set[str]) -> list[ast.stmt]:
    """Plain assignments and appends, in which a name that is set again has another name up to there; Unfit where there are others."""
    plain: list[Any] = []
    for statement in body:
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            made: Any = next((s for s in reversed(plain) if statement.target.id in stored(s)), None)
            need(made is not None and isinstance(made.value, ast.BinOp))  # others may see anything else, and what becomes of it
            value = ast.BinOp(ast.Name(statement.target.id, ast.Load()), statement.op, statement.value)
            statement = syntax_tree(f"{statement.target.id} = {ast.unparse(value)}").body[0]
        plain.append(statement)
        if isinstance(statement, ast.Assign):
            target: Any = statement.targets[0]
            parts = target.elts if isinstance(target, ast.Tuple) else [target]
            need(len(statement.targets) == 1 and all(isinstance(p, ast.Name) for p in parts))
        else:
            call: Any = statement.value  # type: ignore[attr-defined]
            need(isinstance(statement, ast.Expr) and call.func.attr == "append" and call.func.value.id in lists and len(call.args) == 1)
    left = [n for s in plain for n in stored(s)]
    now: dict[str, str] = {}
    for statement in plain:
        for node in [n for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]:
            node.id = now.get(node.id, node.id)
        for node in [n for n in ast.walk(statement.targets[0]) if isinstance(n, ast.Name)] if isinstance(statement, ast.Assign) else []:
            left.remove(node.id)
            again = node.id in left
            now[node.id] = free_name(node.id, taken) if again else node.id
            node.id = now[node.id]
    return plain


__all__ = ["LINEAR", "Products", "StepSlices", "each_name_once"]
