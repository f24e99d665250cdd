"""Inductor's texts for the pieces of a graph, put together as the text for the whole."""

from __future__ import annotations

import ast
import copy
import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch.fx import Node


@dataclass
class Piece:
    """One text of Inductor's, with its kernels under names of their own."""

    kernels: str
    arguments: list[str]
    body: list[ast.stmt]
    """The statements of ``call`` without reading its arguments and without ``del``; the last is the return."""


def piece(text: str, number: int) -> Piece:
    """Take a wrapper's text apart."""
    tree = ast.parse(text)
    lines = text.splitlines()
    definitions = []
    names = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "async_compile.triton":
            assert isinstance(node.targets[0], ast.Name)
            names[node.targets[0].id] = f"{node.targets[0].id}_{number}"
            first = node.lineno - 1
            while first > 0 and lines[first - 1].startswith("#"):
                first -= 1
            definitions.append("\n".join(lines[first : node.end_lineno]))
    call = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "call" and n.args.args[-1].arg == "args")
    arguments: list[str] = []
    body: list[ast.stmt] = []
    rename: dict[str, str] = dict(names)
    for statement in _flat(call.body):
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if target is not None and ast.unparse(statement.value) == "args":  # type: ignore[attr-defined]
            arguments = [ast.unparse(e) for e in target.elts] if isinstance(target, ast.Tuple | ast.List) else [ast.unparse(target)]
        elif isinstance(target, ast.Name) and re.fullmatch(r"s\d+", target.id):
            source = ast.unparse(statement.value)  # type: ignore[attr-defined]
            if re.fullmatch(r"s\d+", source):  # two symbols found equal
                rename[target.id] = rename.get(source, source)
        elif not isinstance(statement, ast.Delete) and ast.unparse(statement) != "args.clear()":
            body.append(statement)
    kernels = "\n\n".join(definitions)
    for name, new in names.items():
        kernels = re.sub(rf"\b{name}\b", new, kernels)
    rename |= {f"{n}_{axis}numel": f"{new}_{axis}numel" for n, new in names.items() for axis in "xyz"}
    body = [_Renamed({k: ast.Name(v, ast.Load()) for k, v in rename.items()}).visit(s) for s in body]
    return Piece(kernels, arguments, body)


def _flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        if isinstance(statement, ast.With):
            yield from _flat(statement.body)
        else:
            yield statement


class _Renamed(ast.NodeTransformer):
    """Names to expressions; a view of what is a view already becomes one view."""

    def __init__(self, names: dict[str, ast.expr]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        found = self.names.get(node.id)
        if found is None:
            return node
        if isinstance(found, ast.Name):
            return ast.Name(found.id, node.ctx)
        return copy.deepcopy(found)

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


@dataclass
class Stitched:
    """The whole, as it grows."""

    arguments: list[str]
    pieces: list[Piece] = field(default_factory=list)
    body: list[ast.stmt] = field(default_factory=list)
    values: dict[Node, ast.expr] = field(default_factory=dict)
    """What stands for a node of the graph in the text."""
    count: int = 0

    def _fresh(self) -> str:
        self.count += 1
        return f"buf{self.count - 1}"

    def value(self, node: Node) -> ast.expr:
        return self.values.get(node) or ast.Name(node.name, ast.Load())

    def instance(self, of: Piece, inputs: list[Node], outputs: list[Node], sizes: dict[str, Any]) -> None:
        """The statements of a piece for these tensors and sizes."""
        names: dict[str, ast.expr] = {k: _parsed(v) for k, v in sizes.items()}
        given = [a for a in of.arguments if not re.fullmatch(r"size_s\d+", a)]
        names |= {a: self.value(n) for a, n in zip(given, inputs, strict=True)}
        for statement in of.body[:-1]:
            target = statement.targets[0] if isinstance(statement, ast.Assign) else None
            made = _Renamed(names).visit(copy.deepcopy(statement))
            if isinstance(target, ast.Name) and re.fullmatch(r"(buf|ps)\d+", target.id):
                if re.fullmatch(r"ps\d+", target.id):
                    names[target.id] = made.value
                    continue
                names[target.id] = ast.Name(self._fresh(), ast.Load())
                made.targets = [ast.Name(names[target.id].id, ast.Store())]  # type: ignore[attr-defined]
            self.body.append(made)
        result = of.body[-1].value  # type: ignore[attr-defined]
        for node, value in zip(outputs, result.elts, strict=True):
            self.values[node] = _Renamed(names).visit(copy.deepcopy(value))

    def call(self, nodes: list[Node]) -> None:
        """A heavy operator and the members of its result."""
        for node in nodes:
            name = self._fresh()
            member = node.target is operator.getitem
            text = self.text_of(node.args[0]) + f"[{node.args[1]}]" if member else self._called(node)
            self.body.append(ast.parse(f"{name} = {text}").body[0])
            self.values[node] = ast.Name(name, ast.Load())

    def _called(self, node: Node) -> str:
        arguments = [self.text_of(a) for a in node.args] + [f"{k}={self.text_of(v)}" for k, v in node.kwargs.items()]
        return f"torch.ops.{node.target}({', '.join(arguments)})"

    def text_of(self, value: Any) -> str:
        if isinstance(value, Node):
            number = value.meta.get("val")
            if isinstance(number, torch.SymInt):
                return f"({ast.unparse(_parsed(number.node.expr))})"
            return ast.unparse(self.value(value))
        if isinstance(value, list | tuple):
            return "[" + ", ".join(self.text_of(v) for v in value) + "]"
        return repr(value)

    def text(self, results: Any) -> str:
        """The wrapper, in Inductor's form."""
        body = [*self._with_deletions(results)]
        lines = ["async_compile = AsyncCompile()", *(p.kernels for p in self.pieces if p.kernels), "def call(args):"]
        lines += [f"    {', '.join(self.arguments)}{',' if len(self.arguments) == 1 else ''} = args", "    args.clear()"]
        lines += [f"    {ast.unparse(ast.fix_missing_locations(s))}" for s in body]
        lines.append(f"    return ({''.join(self.text_of(r) + ', ' for r in results)})")
        return "\n".join(lines) + "\n"

    def _with_deletions(self, results: Any) -> Iterator[ast.stmt]:
        """The statements, each buffer deleted after its last use."""
        kept = {n.id for r in results if isinstance(r, Node) for n in ast.walk(self.value(r)) if isinstance(n, ast.Name)}
        last: dict[str, int] = {}
        for i, statement in enumerate(self.body):
            last.update({n.id: i for n in ast.walk(statement) if isinstance(n, ast.Name) and re.fullmatch(r"buf\d+", n.id)})
        dead: dict[int, list[str]] = {}
        for name, i in last.items():
            if name not in kept:
                dead.setdefault(i, []).append(name)
        for i, statement in enumerate(self.body):
            yield statement
            if i in dead:
                yield ast.Delete([ast.Name(n, ast.Del()) for n in dead[i]])


def _parsed(expression: Any) -> ast.expr:
    from kernelllm.compiler.capture.size_sources import text

    return ast.parse(text(sympy.sympify(expression)), mode="eval").body
