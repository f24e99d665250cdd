"""Integer helpers of Triton become plain arithmetic on the host, where a call of theirs costs more than a cached launch."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import triton

from kernelllm.compiler.emit import formatting
from kernelllm.core.text import syntax_tree

_HELPERS = {"triton.cdiv": triton.cdiv, "triton.next_power_of_2": triton.next_power_of_2}


def plain(code: str) -> str:
    """The same file with such calls as arithmetic, outside of kernels; those of known numbers become the number."""
    if not any(f"{name}(" in code for name in _HELPERS):
        return code
    lines = code.encode().splitlines(keepends=True)  # the positions count bytes
    for call, parent in reversed(list(_calls(syntax_tree(code)))):
        assert call.end_lineno is not None
        first, last = call.lineno - 1, call.end_lineno - 1
        text = formatting.quoted(_text(call, parent)).encode()
        lines[first : last + 1] = [lines[first][: call.col_offset] + text + lines[last][call.end_col_offset :]]
    return b"".join(lines).decode()


def _calls(node: ast.AST) -> Iterator[tuple[ast.Call, ast.AST]]:
    """The outermost calls in the order of the text, each with what it is a part of."""
    for child in sorted(ast.iter_child_nodes(node), key=lambda n: (getattr(n, "lineno", 0), getattr(n, "col_offset", 0))):
        if _is_helper(child):
            assert isinstance(child, ast.Call)
            yield child, node
        elif not (isinstance(child, ast.FunctionDef) and any("jit" in ast.unparse(d) for d in child.decorator_list)):
            yield from _calls(child)


def _is_helper(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in _HELPERS and not node.keywords


class _HelperCalls(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.expr:
        helper = _is_helper(node)
        self.generic_visit(node)
        if not helper:
            return node
        values = [a.value if isinstance(a, ast.Constant) else None for a in node.args]
        if all(type(value) is int for value in values):
            return ast.Constant(_HELPERS[ast.unparse(node.func)](*values))
        if len(node.args) == 2:
            return _divided(node.args[0], node.args[1], values[1])
        bits = ast.Attribute(ast.BinOp(node.args[0], ast.Sub(), ast.Constant(1)), "bit_length", ast.Load())
        return ast.BinOp(ast.Constant(1), ast.LShift(), ast.Call(bits, [], []))


def _divided(value: ast.expr, by: ast.expr, known: object) -> ast.expr:
    """The quotient, rounded up."""
    if type(known) is int:
        return ast.BinOp(ast.BinOp(value, ast.Add(), ast.Constant(known - 1)), ast.FloorDiv(), by)
    negative = isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub)
    opposite = value.operand if negative else ast.UnaryOp(ast.USub(), value)  # type: ignore[attr-defined]
    return ast.UnaryOp(ast.USub(), ast.BinOp(opposite, ast.FloorDiv(), by))


def _text(call: ast.Call, parent: ast.AST) -> str:
    made = _HelperCalls().visit(call)
    text = ast.unparse(made)
    loose = isinstance(made, ast.BinOp) and isinstance(parent, ast.BinOp | ast.UnaryOp)
    return f"({text})" if loose or (isinstance(parent, ast.Attribute) or _is_power(parent)) else text


def _is_power(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)
