"""Size formulas inside a kernel (a chunk's length, an element count) are computed by the caller and passed in."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from kernelllm.compiler.emit.ast_tools import all_reads
from kernelllm.compiler.emit.kernels import integers
from kernelllm.compiler.emit.kernels.clean import Cleaned


class _Launch(Protocol):
    sizes: dict[str, Any]
    """Size argument to a sympy expression over the file's size names."""


def compose_sizes(cleaned: Cleaned, calls: Sequence[_Launch]) -> None:
    """SizeNames that the kernel only uses together (a chunk's length, an element count) are computed by the caller."""
    sizes = {p for p in cleaned.params if p not in cleaned.pointers and not p.endswith("BLOCK")}
    found: dict[str, str] = {}
    values: dict[str, Any] = {}
    most = 2 if cleaned.facts.index_type == "int64" else 3  # a product of two 32-bit arguments may overflow

    class Compose(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.AST:
            rounded = _rounded_size(node, sizes, cleaned.facts.is_size)
            if rounded is None:
                return self.generic_visit(node)
            values[ast.unparse(node)] = rounded
            return ast.Name(found.setdefault(ast.unparse(node), f"composite{len(found)}"), ast.Load())

        def generic_visit(self, node: ast.AST) -> ast.AST:
            if isinstance(node, ast.BinOp) and cleaned.facts.is_size(node):
                names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
                if isinstance(node.op, ast.Add | ast.Sub) and any(isinstance(n, ast.Constant) for n in (node.left, node.right)):
                    return super().generic_visit(node)
                divides = any(isinstance(n, ast.FloorDiv) for n in ast.walk(node))
                if names and names <= sizes and (divides or len(names) >= most):
                    try:
                        values[ast.unparse(node)] = integers.to_sympy(node)
                    except integers.NotInteger:
                        return super().generic_visit(node)
                    name = found.setdefault(ast.unparse(node), f"composite{len(found)}")
                    return ast.Name(name, ast.Load())
            return super().generic_visit(node)

    cleaned.body = [Compose().visit(s) for s in cleaned.body]
    for text, name in found.items():
        for call in calls:
            call.sizes[name] = values[text].xreplace({integers.symbol(p): v for p, v in call.sizes.items()})
        cleaned.facts.sizes.add(name)
        cleaned.facts.types[name], cleaned.facts.axes[name] = "size", frozenset()
    used = all_reads(cleaned.body)
    blocks = [p for p in cleaned.params if p.endswith("BLOCK")]
    plain = [p for p in cleaned.params if p not in blocks and (used[p] or p in cleaned.pointers)]
    cleaned.params = [*plain, *found.values(), *blocks]


def _rounded_size(node: ast.Call, sizes: set[str], is_size: Callable[[ast.expr], bool]) -> Any:
    """A float formula of sizes that is made a whole number: computed by the caller, as Python computes it. None for anything else."""
    match node:
        case ast.Call(func=ast.Attribute(attr="to", value=ast.Call(func=rounds, args=[ast.Call(args=[_, formula, _])]))):
            names = {n.id for n in ast.walk(formula) if isinstance(n, ast.Name)}
            if isinstance(rounds, ast.Attribute) and rounds.attr in ("trunc", "floor") and names <= sizes and is_size(formula):
                with suppress(integers.NotInteger):
                    return integers.to_sympy(ast.Call(rounds, [formula], []))
    return None


__all__ = ["compose_sizes"]
