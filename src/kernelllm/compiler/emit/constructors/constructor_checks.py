"""What the constructor of a written file refuses: arguments for which the kernels were not written."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import torch

from kernelllm.compiler.capture.captured import Attributes, Captured, Condition, Size, SizeExpression
from kernelllm.compiler.capture.derived_sizes import hints
from kernelllm.compiler.emit import size_examples
from kernelllm.compiler.emit.forward import HostPrinter
from kernelllm.compiler.emit.size_names import as_python
from kernelllm.core.text import syntax_tree

OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def unreadable_sizes(captured: Captured, condition: Condition) -> set[str]:
    """Sizes of a condition that the forward cannot read: arguments of the constructor that it does not keep."""
    return _symbols(f"{condition[0]} {condition[2]}") - {size.symbol for size in captured.sizes}


def conditions(captured: Captured, host: HostPrinter, constructor: ast.FunctionDef) -> dict[str, str]:
    """Conditions under which an argument differs from what the kernels hold, to what they hold."""
    mine = parameters(constructor)
    given = {name: value for name, value in captured.constructor.items() if name in mine}
    plain = {n: v.text for n, v in given.items() if isinstance(v, SizeExpression) and _symbols(v.text) == {v.text}}
    names = {text: ast.Name(n, ast.Load()) for n, text in reversed(plain.items())}
    own = {str(s): int(n) for s, n in hints(captured.env).items()}
    sizes = [*captured.sizes, *(Size(symbol, name.id, own[symbol]) for symbol, name in names.items() if symbol in own)]
    found: dict[str, str] = {}
    lost: dict[str, int] = {}
    for left, sign, right in size_examples.independent([c for c in captured.guards if unreadable_sizes(captured, c)], sizes):
        symbols = _symbols(f"{left} {right}")
        if symbols <= names.keys():
            one, other = (ast.unparse(_Arguments(names).visit(syntax_tree(as_python(side)))) for side in (left, right))
            found[f"{one} {OPPOSITE[sign]} {other}"] = f"{one} {sign} {other}"
        else:
            lost |= {s: own[s] for s in unreadable_sizes(captured, (left, sign, right)) if s in own}
    found |= dict(_tied(given, names))
    known = host.sizes.known
    lost |= {s.symbol: s.hint for n, s in known.items() if n in host.used_sizes and not s.sources and not s.expression}
    for name, value in given.items():
        found |= dict(_fixed(name, value, lost))
    return found


def _tied(given: dict[str, Any], names: dict[str, ast.Name]) -> Iterator[tuple[str, str]]:
    """Arguments that follow from others for the kernels: the code decided by their being equal, or the problem has one size for both."""
    first: dict[str, str] = {}
    for name, value in given.items():
        text = value.text if isinstance(value, SizeExpression) else ""
        if not _symbols(text):
            continue
        if text in first:
            yield f"{name} != {first[text]}", f"{name} == {first[text]}"
        elif text not in names and _symbols(text) <= names.keys():
            other = ast.unparse(_Arguments(names).visit(syntax_tree(as_python(text))))
            yield f"{name} != {other}", f"{name} == {other}"
        first.setdefault(text, name)


def parameters(function: ast.FunctionDef) -> set[str]:
    """Names of all that a function may be given; ``*args`` and ``**kwargs`` have theirs."""
    args = function.args
    rest = [a for a in (args.vararg, args.kwarg) if a is not None]
    return {a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs, *rest)}


def _symbols(text: str) -> set[str]:
    return {*re.findall(r"\bs\d+\b", text)}


class _Arguments(ast.NodeTransformer):
    def __init__(self, names: dict[str, ast.Name]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.names.get(node.id, node)


def distinguishes_all(captured: Captured, constructor: ast.FunctionDef) -> bool:
    """Whether a file can tell all arguments of a constructor from others."""
    given = [captured.constructor.get(name) for name in parameters(constructor) - {constructor.args.args[0].arg}]
    return all(isinstance(v, Attributes | SizeExpression | list | tuple | dict) or literal(v) is not None for v in given)


def _fixed(name: str, value: Any, lost: dict[str, int]) -> Iterator[tuple[str, str]]:
    """``lost``: sizes that something depends on and that can be read nowhere. They are fixed; others are not."""
    if isinstance(value, Attributes):
        for attribute, item in value.values.items():
            yield from _fixed(f"{name}.{attribute}", item, lost)
        return
    if isinstance(value, list | tuple) and any(isinstance(v, SizeExpression | Attributes | list | tuple | dict) for v in value):
        yield f"len({name}) != {len(value)}", f"len({name})={len(value)}"
        for i, item in enumerate(value):
            yield from _fixed(f"{name}[{i}]", item, lost)
        return
    if isinstance(value, dict) and any(isinstance(v, SizeExpression | Attributes | list | tuple | dict) for v in value.values()):
        yield f"sorted({name}) != {sorted(value)!r}", f"sorted({name})={sorted(value)!r}"
        for key, item in value.items():
            yield from _fixed(f"{name}[{key!r}]", item, lost)
        return
    if isinstance(value, SizeExpression) and _symbols(value.text) <= lost.keys():
        value = eval(as_python(value.text), {"__builtins__": {}}, dict(lost))
    text = None if isinstance(value, SizeExpression) else literal(value)
    if text is not None:
        yield (f"{name} is not {text}" if value is None else f"{name} != {text}"), f"{name}={text}"


def literal(value: Any) -> str | None:
    """A plain value as Python; None for an object that has no such form."""
    if isinstance(value, torch.dtype):
        return str(value)
    text = repr(value)
    try:
        return text if ast.literal_eval(text) == value else None
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
