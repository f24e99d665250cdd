"""Finds the strings that an expression of a candidate's source may give, as far as the text alone tells."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Sequence
from typing import NamedTuple, Protocol

_DEPTH = 8
_MOST = 64
"""Combinations of parts that are followed."""
_SAME_ELEMENTS = {"list", "tuple", "set", "sorted", "reversed", "iter"}


class Element(NamedTuple):
    """What a loop binds: any element of ``iterable``, or of each its ``part``-th part."""

    iterable: ast.expr
    part: int | None = None


class Parameter(NamedTuple):
    """What a function's parameter is bound to: its default, or what callers give."""

    default: ast.expr | None
    function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    name: str


class Bindings(Protocol):
    """What a file binds its names to."""

    def bindings(self, node: ast.Name) -> Sequence[ast.expr | Element | Parameter | str | None] | None:
        """What a name is bound to anywhere in its scope, None for a name that the file does not bind."""

    def arguments(self, parameter: Parameter) -> list[ast.expr] | None:
        """What the file's own calls give for a parameter, None where a function may be called in other ways."""


def texts(source: Bindings, node: ast.AST, depth: int = 0) -> set[str] | None:
    """Every string that ``node`` may be, None when the text does not tell."""
    if depth > _DEPTH:
        return None
    deeper = depth + 1
    match node:
        case ast.Constant(value=str(value)):
            return {value}
        case ast.Constant(value=bytes(value)):
            return {value.decode("latin-1")}
        case ast.Name():
            return _of_name(source, node, deeper)
        case ast.IfExp(body=body, orelse=orelse):
            return _union(texts(source, body, deeper), texts(source, orelse, deeper))
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return _joined("", [texts(source, left, deeper), texts(source, right, deeper)])
        case ast.BinOp(op=ast.Mult(), left=left, right=ast.Constant(value=int(times))) if 0 <= times < _MOST:
            return _joined("", [texts(source, left, deeper)] * times) if texts(source, left, deeper) else None
        case ast.JoinedStr(values=values):
            return _joined("", [texts(source, value, deeper) for value in values])
        case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
            return texts(source, value, deeper)
        case ast.Subscript(value=value, slice=ast.Slice(lower=None, upper=None, step=ast.UnaryOp(operand=ast.Constant(value=1)))):
            inner = texts(source, value, deeper)
            return {text[::-1] for text in inner} if inner is not None else None
        case ast.Call(func=ast.Attribute(value=glue, attr="join"), args=[ast.List(elts=parts) | ast.Tuple(elts=parts)]):
            between = texts(source, glue, deeper)
            if between is None or len(between) != 1:
                return None
            return _joined(next(iter(between)), [texts(source, part, deeper) for part in parts])
        case ast.Call(func=ast.Name(id="chr"), args=[ast.Constant(value=int(code))]) if 0 <= code < 0x110000:
            return {chr(code)}
        case ast.Call(func=ast.Attribute(value=value, attr="decode" | "strip" | "lower"), args=[] | [ast.Constant()]):
            return texts(source, value, deeper)
    return None


def elements(source: Bindings, node: ast.expr, depth: int = 0) -> list[ast.expr] | None:
    """The elements of what a loop runs over, where they are written out."""
    if depth > _DEPTH:
        return None
    match node:
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
            return None if any(isinstance(part, ast.Starred) for part in parts) else list(parts)
        case ast.Dict(keys=keys):
            return None if None in keys else [key for key in keys if key is not None]
        case ast.Name():
            known = source.bindings(node)
            only = known[0] if known and len(known) == 1 else None
            return elements(source, only, depth + 1) if isinstance(only, ast.expr) else None
        case ast.Call(func=ast.Name(id=name), args=[inner]) if name in _SAME_ELEMENTS:
            return elements(source, inner, depth + 1)
        case ast.Call(func=ast.Name(id="enumerate"), args=[inner, *_]):
            listed = elements(source, inner, depth + 1)
            return None if listed is None else [ast.Tuple(elts=[ast.Constant(value=i), part]) for i, part in enumerate(listed)]
        case ast.Call(func=ast.Name(id="zip"), args=inner):
            columns = [elements(source, each, depth + 1) for each in inner]
            length = max((len(column) for column in columns if column is not None), default=0)
            unknown: list[ast.expr] = [ast.Constant(value=None)] * length
            rows = zip(*(unknown if column is None else column for column in columns), strict=False)
            return [ast.Tuple(elts=list(row)) for row in rows] if length else None
        case ast.Call(func=ast.Attribute(value=ast.Dict() as table, attr="keys"), args=[]):
            return elements(source, table, depth + 1)
        case ast.Call(func=ast.Attribute(value=ast.Dict(keys=keys, values=values), attr="items"), args=[]) if None not in keys:
            return [ast.Tuple(elts=[key, value]) for key, value in zip(keys, values, strict=True) if key is not None]
    return None


def of_element(source: Bindings, element: Element, depth: int = 0) -> list[ast.expr] | None:
    """The expressions that a loop's variable stands for, None when the text does not tell."""
    listed = elements(source, element.iterable, depth + 1)
    if listed is None or element.part is None:
        return listed
    parts = [part.elts for part in listed if isinstance(part, ast.Tuple | ast.List) and element.part < len(part.elts)]
    return [each[element.part] for each in parts] if len(parts) == len(listed) else None


def _of_name(source: Bindings, node: ast.Name, depth: int) -> set[str] | None:
    found: set[str] | None = set()
    known = source.bindings(node)
    for value in known or [None]:
        if isinstance(value, ast.expr):
            found = _union(found, texts(source, value, depth))
        elif isinstance(value, Element):
            listed = of_element(source, value, depth)
            for part in [None] if listed is None else listed:
                found = _union(found, texts(source, part, depth) if part is not None else None)
        elif isinstance(value, Parameter):
            given = source.arguments(value)
            for argument in [None] if given is None else given:
                found = _union(found, texts(source, argument, depth) if argument is not None else None)
        else:
            return None
    return found


def _union(left: set[str] | None, right: set[str] | None) -> set[str] | None:
    return None if left is None or right is None else left | right


def _joined(between: str, parts: list[set[str] | None]) -> set[str] | None:
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return {between.join(each) for each in itertools.islice(itertools.product(*known), _MOST)}
