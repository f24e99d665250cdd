"""Marked split reductions (:mod:`kernelllm.compiler.inductor.split_reductions`) with a variable number of parts.

``(n + p - 1) // p``, p the mark, becomes ``chunk``; every other p becomes ``splits``. forward computes both: chunks of a
multiple of 1024 elements, so that rows start aligned, and as many parts as that takes.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from kernelllm.compiler.inductor.kernel_source import Kernel
from kernelllm.compiler.inductor.wrapper_lines import Launch, Wrapper

_LARGEST = 2**31 - 1
"""Larger numbers are no sizes: 337 divides the end of ``x[1:]``, 2**63 - 1."""


@dataclass(frozen=True)
class Split:
    """One marked number of parts."""

    mark: int
    parts: str
    """Name of the number of parts."""
    chunk: str
    """Name of the length of each."""
    inner: bool
    """The reduction runs along memory, so chunks should start aligned."""


def find(wrapper: Wrapper) -> list[int]:
    """The marks of a wrapper that are used: primes p in host expressions of the form ``(n + p - 1) // p``."""
    found: list[int] = []
    for expression in wrapper.expressions():
        for node in ast.walk(expression):
            match node:
                case ast.BinOp(left=left, op=ast.FloorDiv(), right=ast.Constant(value=int() as p)) if p in wrapper.marks:
                    adds = [n.value for n in ast.walk(left) if isinstance(n, ast.Constant)]
                    if p - 1 in adds and p not in found:
                        found.append(p)
    return found


def substitute(wrapper: Wrapper, marks: list[int]) -> list[Split]:
    """Put names in the place of marks, in host expressions and kernels alike, in place; kernels get the names as arguments."""
    made: list[Split] = []
    for number, mark in enumerate(marks):
        suffix = "" if number == 0 else f"_{number + 1}"
        uses = [k for k in wrapper.kernels.values() if re.search(rf"\b{mark - 1}\b", ast.unparse(k.function))]
        inner = any(k.reduction_hint == "INNER" for k in uses)
        made.append(Split(mark, f"splits{suffix}", f"chunk{suffix}", inner))
    for split in made:
        wrapper.rewrite(_Marks(split).visit)
        for kernel in wrapper.kernels.values():
            _kernel(kernel, split, wrapper)
    return made


def _kernel(kernel: Kernel, split: Split, wrapper: Wrapper) -> None:
    marks = _Marks(split)
    kernel.function.body = [marks.visit(s) for s in kernel.function.body]
    names = {n.id for s in kernel.function.body for n in ast.walk(s) if isinstance(n, ast.Name)}
    added = [n for n in (split.parts, split.chunk) if n in names]
    if not added:
        return
    at = len(kernel.runtime)
    kernel.function.args.args[at:at] = [ast.arg(n) for n in added]
    kernel.signature.update(dict.fromkeys(added, "i64"))
    for step in wrapper.steps:
        if isinstance(step, Launch) and step.kernel == kernel.name:
            step.arguments |= {n: ast.Name(n, ast.Load()) for n in added}


class _Marks(ast.NodeTransformer):
    def __init__(self, split: Split) -> None:
        self.split = split

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        match node:
            case ast.BinOp(left=left, op=ast.FloorDiv(), right=right) if self._is_chunk(left, right):
                return ast.Name(self.split.chunk, ast.Load())
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """In kernels a length that might be negative for all that Inductor knows, such as ``n * n - n``, is divided by a function."""
        match node:
            case ast.Call(func=ast.Attribute(attr="div_floor_integer"), args=[left, right]) if self._is_chunk(left, right):
                return ast.Name(self.split.chunk, ast.Load())
        self.generic_visit(node)
        return node

    def _is_chunk(self, left: ast.expr, right: ast.expr) -> bool:
        mark = self.split.mark
        divided = isinstance(right, ast.Constant) and right.value == mark
        return divided and any(isinstance(n, ast.Constant) and n.value == mark - 1 for n in ast.walk(left))

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if type(node.value) is not int or not 0 < abs(node.value) <= _LARGEST or node.value % self.split.mark:
            return node
        factor = node.value // self.split.mark
        name = ast.Name(self.split.parts, ast.Load())
        return name if factor == 1 else ast.BinOp(ast.Constant(factor), ast.Mult(), name)


def length(wrapper: Wrapper, mark: int) -> ast.expr | None:
    """The n of ``(n + p - 1) // p`` as the wrapper first spells it; call before :func:`substitute`."""
    for expression in wrapper.expressions():
        for node in ast.walk(expression):
            match node:
                case ast.BinOp(left=left, op=ast.FloorDiv(), right=ast.Constant(value=p)) if p == mark:
                    return ast.BinOp(left, ast.Sub(), ast.Constant(mark - 1))
    return None


def lines(split: Split, text: str) -> list[str]:
    """The host lines that compute chunk and parts for a reduction of ``text`` elements."""
    parts = 1 << (split.mark - 1).bit_length()
    if split.inner:
        return [
            f"{split.chunk} = triton.cdiv({text}, {parts} * 1024) * 1024",
            f"{split.parts} = triton.cdiv({text}, {split.chunk})",
        ]
    return [f"{split.chunk} = triton.cdiv({text}, {parts})", f"{split.parts} = triton.cdiv({text}, {split.chunk})"]
