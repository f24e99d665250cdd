"""Which tensors of a graph follow the dtype of the inputs, so that one file serves float32 and half precision.

Kernels compute in float32 whatever they load. Buffers that a template, torch or the caller sees have the type of the inputs; so do those
of elementwise kernels. Statistics and sums that kernels alone read stay float32.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from kernelllm.compiler.emit.ast_tools import name_of
from kernelllm.compiler.inductor.wrapper_lines import Assign, Launch

if TYPE_CHECKING:
    from kernelllm.compiler.capture.captured import Captured
    from kernelllm.compiler.emit.host_steps import HostProgram
    from kernelllm.compiler.inductor.kernel_source import Kernel

_OF_ITS_OWN = ("row_logsumexp",)
"""Templates whose results are float32 in half precision too."""


class _Float32Alone(Exception):
    """The graph needs one type."""


class FollowedDtype:
    """The variables of a graph that have the type of the inputs."""

    def __init__(self, captured: Captured, program: HostProgram, kernels: dict[str, Kernel]) -> None:
        self.served: tuple[str, ...] = ()
        """The types, where there is more than one."""
        used = {program.base(n.id) for e in _expressions(program) for n in ast.walk(e) if isinstance(n, ast.Name)}
        shared = [g for g in captured.graph_inputs if g.dtype == "float32" and g.kind in ("input", "parameter", "buffer") and not g.number]
        shared = [g for g in shared if g.variable in used & program.tensors.keys()]
        self.given = [g.variable for g in sorted(shared, key=lambda g: g.kind != "input")]
        """Arguments of the graph that share the type; all are compared with the first."""
        self.variables: set[str] = set()
        if captured.any_dtype is None or captured.backward or captured.bound or not self.given:
            return
        self._program, self._kernels = program, kernels
        self._upcasts = captured.any_dtype.upcasts
        self._fixed = {g.variable for g in captured.graph_inputs} - set(self.given)
        self._views = {i.target: _bases(i.value) for i in program.items if isinstance(i, Assign) and _is_view(i.value)}
        try:
            found = self._follow(captured, captured.any_dtype.follows)
        except _Float32Alone:
            return
        self.variables, self.served = found, captured.any_dtype.dtypes

    def has(self, node: ast.expr) -> bool:
        """Whether an argument of a launch has the type of the inputs."""
        return bool({self._program.base(n) for n in _bases(node)} & self.variables) if self.variables else False

    def _roots(self, node: ast.expr) -> set[str]:
        """The buffers behind an expression."""
        found, todo = set(), [self._program.base(n) for n in _bases(node)]
        while todo:
            name = todo.pop()
            found.add(name)
            todo += [self._program.base(n) for n in self._views.get(name, ())]
        return found

    def _follow(self, captured: Captured, results: tuple[bool, ...]) -> set[str]:
        program = self._program
        followed, fixed = set(self.given), set(self._fixed)
        values = [n.meta.get("val") for n in captured.graph.graph.output_node().args[0]]
        returned = [e for e, v in zip(program.result, values, strict=False) if isinstance(v, torch.Tensor)]
        floats = [isinstance(v, torch.Tensor) and v.dtype == torch.float32 for v in values]
        floats = [f for f, v in zip(floats, values, strict=True) if isinstance(v, torch.Tensor)]
        if len(returned) != len(results):
            raise _Float32Alone
        for expression, follows, floating in zip(returned, results, floats, strict=True):
            if floating:
                (followed if follows else fixed).update(self._roots(expression))
        for item in program.items:
            if isinstance(item, Assign) and isinstance(item.value, ast.Call) and not _is_view(item.value):
                self._called(item, followed, fixed)
        self._written(followed, fixed)
        if any(self._is_float(v) for v in followed & fixed):
            raise _Float32Alone
        followed = {v for v in followed if self._is_float(v)}
        return followed | {v for v in self._views if self._roots(ast.Name(v)) & followed}

    def _called(self, item: Assign, followed: set[str], fixed: set[str]) -> None:
        """A template or an operator of torch: what it reads and gives has the type."""
        text = ast.unparse(item.value)
        if "torch.float" in text:
            raise _Float32Alone
        assert isinstance(item.value, ast.Call)
        for argument in (*item.value.args, *(k.value for k in item.value.keywords)):
            followed |= self._roots(argument) & self._program.tensors.keys()
        own = any(f"kernelllm.{name}" in text for name in _OF_ITS_OWN)
        (fixed if own else followed).add(item.target)

    def _written(self, followed: set[str], fixed: set[str]) -> None:
        """What kernels write for each other alone."""
        elementwise: set[str] = set()
        for item in self._program.items:
            if not isinstance(item, Launch):
                continue
            kernel = self._kernels[item.kernel]
            written = {b for p, v in item.arguments.items() if p.startswith(("out_ptr", "in_out_ptr")) for b in self._roots(v)}
            atomic = "tl.atomic" in ast.unparse(kernel.function)
            if atomic and any(self._is_float(v) for v in written & followed):
                raise _Float32Alone
            if atomic or self._upcasts or any(p.startswith(("r0_", "r1_")) for p in kernel.params):
                fixed |= written - followed
            else:
                elementwise |= written
        followed |= elementwise - fixed

    def _is_float(self, name: str) -> bool:
        known = self._program.tensors.get(name)
        return known is None or known.dtype == "torch.float32"


def _expressions(program: HostProgram) -> Iterator[ast.expr]:
    for item in program.items:
        yield from item.arguments.values() if isinstance(item, Launch) else [item.value] if isinstance(item, Assign) else []


def _is_view(node: ast.expr) -> bool:
    return isinstance(node, ast.Subscript) or (isinstance(node, ast.Call) and name_of(node.func) == "reinterpret_tensor")


def _bases(node: ast.expr) -> set[str]:
    """Names in an expression; of a view, its buffer's alone."""
    while _is_view(node):
        node = node.args[0] if isinstance(node, ast.Call) else node.value  # type: ignore[attr-defined]
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


__all__ = ["FollowedDtype"]
