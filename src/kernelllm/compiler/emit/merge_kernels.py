"""Kernels that differ only in numbers become one kernel with those numbers as arguments.

A deep network gives many: the same normalisation at 64, 96 and 128 channels. Written once, the file stays readable.
"""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass, field
from typing import Any

import sympy

from kernelllm.compiler.emit import integers
from kernelllm.compiler.emit.block_sizes import LaunchConfig
from kernelllm.compiler.emit.clean import Cleaned


@dataclass
class MergedKernels:
    """Which kernel stands for which, and the numbers that each passes."""

    written: dict[str, str] = field(default_factory=dict)
    """Kernel to the one that is written in its place: itself, or one that differs in numbers only."""
    numbers: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Kernel to argument name to number, as sympy."""


def find(cleaned: dict[str, Cleaned], configs: dict[str, LaunchConfig]) -> MergedKernels:
    """Group the kernels; bodies of those that stand for others get names in the place of numbers, in place."""
    groups: dict[tuple[Any, ...], list[str]] = {}
    numbers: dict[str, list[int | float]] = {}
    for name, one in cleaned.items():
        found = _Numbers()
        text = "\n".join(ast.unparse(found.visit(copy.deepcopy(s))) for s in one.body)
        numbers[name] = found.values
        pointers = tuple(one.kernel.signature.get(p, "") for p in one.pointers)
        key = (text, tuple(one.params), pointers, one.rows, str(configs[name].tuned), tuple(one.persistent))
        groups.setdefault(key, []).append(name)
    merged = MergedKernels()
    for members in groups.values():
        for name in members:
            merged.written[name] = members[0]
            merged.numbers[name] = {}
        if len(members) > 1:
            _lift(cleaned[members[0]], members, numbers, merged)
    return merged


def _lift(first: Cleaned, members: list[str], numbers: dict[str, list[int | float]], merged: MergedKernels) -> None:
    columns: dict[tuple[Any, ...], str] = {}
    names: dict[int, str] = {}
    for at in range(len(numbers[members[0]])):
        column = tuple(numbers[m][at] for m in members)
        if len(set(column)) == 1:
            continue
        if column not in columns:
            columns[column] = f"composite_lifted{len(columns)}"
        names[at] = columns[column]
    if not names:
        return
    first.body = [_Named(names).visit(s) for s in _numbered(first.body)]
    for column, name in columns.items():
        whole = all(isinstance(v, int) for v in column)
        first.facts.types[name], first.facts.axes[name] = ("size" if whole else "number"), frozenset()
        if whole:
            first.facts.sizes.add(name)
        for member, value in zip(members, column, strict=True):
            merged.numbers[member][name] = sympy.Integer(value) if isinstance(value, int) else integers.symbol(repr(value))
    blocks = [p for p in first.params if p.endswith("BLOCK")]
    first.params = [*(p for p in first.params if p not in blocks), *columns.values(), *blocks]


def _is_number(node: ast.Constant) -> bool:
    return isinstance(node.value, int | float) and not isinstance(node.value, bool)


class _Numbers(ast.NodeTransformer):
    """Collects numbers in order and puts a mark in their place; an integer and a float leave different marks."""

    def __init__(self) -> None:
        self.values: list[int | float] = []

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if not _is_number(node):
            return node
        assert isinstance(node.value, int | float)
        self.values.append(node.value)
        return ast.Name("_int" if isinstance(node.value, int) else "_float", ast.Load())


def _numbered(body: list[ast.stmt]) -> list[ast.stmt]:
    """Give every number its position in the order that :class:`_Numbers` sees."""
    count = 0

    class Number(ast.NodeTransformer):
        def visit_Constant(self, node: ast.Constant) -> ast.expr:
            nonlocal count
            if _is_number(node):
                node.kind = str(count)
                count += 1
            return node

    return [Number().visit(s) for s in body]


class _Named(ast.NodeTransformer):
    def __init__(self, names: dict[int, str]) -> None:
        self.names = names

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if not _is_number(node):
            return node
        at, node.kind = int(node.kind or 0), None
        return ast.Name(self.names[at], ast.Load()) if at in self.names else node
