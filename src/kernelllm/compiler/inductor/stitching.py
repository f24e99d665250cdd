"""The wrappers of a graph's regions are stitched into the wrapper of the whole graph."""

from __future__ import annotations

import ast
import copy
import operator
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import sympy
import torch
from torch.fx import Node

from kernelllm.compiler.capture.size_sources import size_text
from kernelllm.compiler.inductor.wrapper_lines import Allocate, Assign, Free, HostStep, Launch, Wrapper, changed, expression, expressions


class _Substituted(ast.NodeTransformer):
    """Puts expressions in the place of names. A view of a view becomes one view."""

    def __init__(self, names: dict[str, ast.expr]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        found = self.names.get(node.id)
        return node if found is None else copy.deepcopy(found)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if _is_view(node) and _is_view(node.args[0]):
            inner = node.args[0]
            assert isinstance(inner, ast.Call)
            offset = ast.BinOp(node.args[3], ast.Add(), inner.args[3])
            return ast.Call(node.func, [inner.args[0], node.args[1], node.args[2], offset], [])
        return node


def _is_view(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "reinterpret_tensor"


class StitchedWrapper:
    """The wrapper of the whole, as it grows."""

    def __init__(self, arguments: list[str]) -> None:
        self.whole = Wrapper(inputs=arguments)
        self.values: dict[Node, ast.expr] = {}
        """What stands for a node of the graph on the host."""
        self.regions = 0
        self.buffers = 0

    def _fresh(self) -> str:
        self.buffers += 1
        return f"buf{self.buffers - 1}"

    def value(self, node: Node) -> ast.expr:
        while node.target is torch.ops.aten.copy_.default:  # gives the argument that it writes
            assert isinstance(node.args[0], Node)
            node = node.args[0]
        return self.values.get(node) or ast.Name(node.name, ast.Load())

    def add(self, region: Wrapper) -> Wrapper:
        """Take a region's kernels in, under names of their own; returns the region with those names."""
        names = {name: f"{name}_{self.regions}" for name in region.kernels}
        self.regions += 1
        self.whole.kernels |= {names[k]: replace(kernel, name=names[k]) for k, kernel in region.kernels.items()}
        same: dict[str, ast.expr] = {}
        """Symbols that were found equal."""
        steps: list[HostStep] = []
        for step in region.steps:
            if isinstance(step, Assign) and re.fullmatch(r"s\d+", step.target):
                if isinstance(step.value, ast.Name) and re.fullmatch(r"s\d+", step.value.id):
                    same[step.target] = same.get(step.value.id, step.value)
            elif isinstance(step, Launch):
                steps.append(replace(step, kernel=names[step.kernel]))
            elif not isinstance(step, Free):
                steps.append(step)
        added = replace(region, steps=steps)
        added.rewrite(_Substituted(same).visit)
        return added

    def instance(self, of: Wrapper, inputs: list[Node], outputs: list[Node], sizes: dict[str, Any]) -> None:
        """The steps of a region for these tensors and sizes."""
        names: dict[str, ast.expr] = {k: _parsed(v) for k, v in sizes.items()}
        given = [a for a in of.inputs if not re.fullmatch(r"size_s\d+", a)]
        names |= {a: self.value(n) for a, n in zip(given, inputs, strict=True)}

        def here(part: ast.expr) -> ast.expr:
            made: ast.expr = _Substituted(names).visit(copy.deepcopy(part))
            return made

        for step in of.steps:
            made = changed(step, here)
            if isinstance(made, Allocate | Assign) and re.fullmatch(r"(buf|ps)\d+", made.target):
                target = made.target
                if target.startswith("ps"):
                    assert isinstance(made, Assign)
                    names[target] = made.value
                    continue
                made.target = self._fresh()
                names[target] = ast.Name(made.target, ast.Load())
            self.whole.steps.append(made)
        for node, value in zip(outputs, of.results, strict=True):
            self.values[node] = here(value)

    def call(self, nodes: list[Node]) -> None:
        """A heavy operator and the members of its result."""
        for node in nodes:
            name = self._fresh()
            member = node.target is operator.getitem
            text = self.text_of(node.args[0]) + f"[{node.args[1]}]" if member else self._called(node)
            self.whole.steps.append(Assign(name, expression(text), _layout(node.meta.get("val"))))
            self.values[node] = ast.Name(name, ast.Load())

    def _called(self, node: Node) -> str:
        arguments = [self.text_of(a) for a in node.args] + [f"{k}={self.text_of(v)}" for k, v in node.kwargs.items()]
        return f"torch.ops.{node.target}({', '.join(arguments)})"

    def text_of(self, value: Any) -> str:
        """An argument of an operator of the graph, as the host spells it."""
        if isinstance(value, Node):
            number = value.meta.get("val")
            if isinstance(number, torch.SymInt):
                return f"({ast.unparse(_parsed(number.node.expr))})"
            return ast.unparse(self.value(value))
        if isinstance(value, list | tuple):
            return "[" + ", ".join(self.text_of(v) for v in value) + "]"
        return repr(value)

    def finished(self, results: Any) -> Wrapper:
        """The wrapper, each buffer freed after its last use."""
        self.whole.results = [expression(self.text_of(r)) for r in results]
        self.whole.steps = list(self._with_frees())
        return self.whole

    def _with_frees(self) -> Iterator[HostStep]:
        kept = {n for result in self.whole.results for n in _buffers(result)}
        last: dict[str, int] = {}
        for i, step in enumerate(self.whole.steps):
            targets = [step.target] if isinstance(step, Allocate | Assign) and step.target else []
            last.update(dict.fromkeys([*targets, *(n for e in expressions(step) for n in _buffers(e))], i))
        dead: dict[int, list[str]] = {}
        for name, i in last.items():
            if name not in kept:
                dead.setdefault(i, []).append(name)
        for i, step in enumerate(self.whole.steps):
            yield step
            if i in dead:
                yield Free(dead[i])


def _layout(value: Any) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Size and strides that the regions after an operator rely on, where they are numbers."""
    if not isinstance(value, torch.Tensor) or not all(isinstance(n, int) for n in (*value.shape, *value.stride())):
        return None
    return tuple(value.shape), tuple(value.stride())


def _buffers(node: ast.expr) -> list[str]:
    return [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and re.fullmatch(r"buf\d+", n.id)]


def _parsed(size: Any) -> ast.expr:
    return expression(size_text(sympy.sympify(size)))
