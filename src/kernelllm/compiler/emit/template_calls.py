"""What a forward tells the templates of their arguments."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

import sympy
import torch

from kernelllm.compiler.emit import integers
from kernelllm.compiler.emit.abstract import UNKNOWN, AbstractTensor, Const, Sequence, Unknown, Value, const
from kernelllm.compiler.emit.ast_tools import name_of
from kernelllm.compiler.emit.specialise import Call

if TYPE_CHECKING:
    from kernelllm.compiler.emit.host_steps import HostProgram
    from kernelllm.compiler.emit.size_names import SizeNames


def template_call(node: ast.expr, program: HostProgram, sizes: SizeNames) -> Call | None:
    """The call of a template that a step of the wrapper is, None for any other step."""
    while isinstance(node, ast.Subscript):
        node = node.value
    called = re.fullmatch(r"torch\.ops\.kernelllm\.(\w+)(\.default)?", ast.unparse(node.func)) if isinstance(node, ast.Call) else None
    if called is None or called[1].startswith("torch_"):
        return None
    reader = _ArgumentReader(program, sizes)
    assert isinstance(node, ast.Call)
    return Call(called[1], [reader.value(a) for a in node.args], {str(k.arg): reader.value(k.value) for k in node.keywords})


class _ArgumentReader:
    """Arguments in the wrapper's words, as what is known of them."""

    def __init__(self, program: HostProgram, sizes: SizeNames) -> None:
        self.program, self.sizes = program, sizes
        self.hints = {integers.symbol(name): sympy.Integer(size.hint) for name, size in sizes.known.items()}

    def value(self, node: ast.expr) -> Value:
        try:
            return const(ast.literal_eval(node))
        except ValueError:
            pass
        if isinstance(node, ast.List | ast.Tuple):
            return Sequence(tuple(map(self.value, node.elts)), isinstance(node, ast.List))
        if isinstance(node, ast.Name) and self.program.base(node.id) in self.program.tensors:
            known = self.program.tensors[self.program.base(node.id)]
            return self._tensor(known.dtype, known.shape, known.stride)
        if isinstance(node, ast.Call) and name_of(node.func) == "reinterpret_tensor" and isinstance(node.args[0], ast.Name):
            base = self.program.tensors.get(self.program.base(node.args[0].id))
            shape, stride = ([self._expression(e) for e in getattr(a, "elts", [])] for a in node.args[1:3])
            return self._tensor(base.dtype, shape, stride) if base is not None else UNKNOWN
        expression = self._expression(node)
        return UNKNOWN if expression is None else self._size(expression)

    def _expression(self, node: ast.expr) -> Any:
        try:
            return self.sizes.expression(node)
        except integers.NotInteger:
            return None

    def _tensor(self, dtype: str, shape: list[Any], stride: list[Any]) -> Value:
        found = torch.float32 if dtype.endswith(".dtype") else getattr(torch, dtype.removeprefix("torch."), None)
        if not isinstance(found, torch.dtype) or any(e is None for e in (*shape, *stride)):
            return UNKNOWN
        strides = [self._size(s) for s in stride]  # those of the caller's tensors are not checked
        return AbstractTensor(Const((found,)), tuple(map(self._size, shape)), tuple(Unknown(getattr(s, "hint", None)) for s in strides))

    def _size(self, expression: Any) -> Value:
        if expression.is_Integer:
            return const(int(expression))
        value = expression.xreplace(self.hints)
        for _ in range(4):
            if value.is_Integer:
                return Unknown(int(value))
            value = value.xreplace(self.hints).doit()
        return UNKNOWN
