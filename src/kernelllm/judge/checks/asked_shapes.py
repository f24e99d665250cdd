"""Finds what a candidate's host asks of the shape of a tensor, whatever it computes of it: sums, ratios, digits, divisors.

Such a condition is evaluated for other shapes, without running anything of the candidate's: it may hold at one that nobody tried.
"""

from __future__ import annotations

import ast
import copy
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

from kernelllm.judge.checks.parsed_source import ParsedSource, parse_source

_DEPTH, _MOST = 8, 12
_SHAPE = "_shape"
_RANGE = 10_000
_POWER, _POWER_OF_NUMBER = 8, 40
"""Largest exponent and shift: nothing that is evaluated may grow without bounds."""
_NODES = (
    ast.BoolOp, ast.Compare, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Call, ast.Name, ast.Constant, ast.Tuple, ast.List, ast.Set,
    ast.Subscript, ast.Slice, ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.comprehension, ast.expr_context, ast.boolop, ast.cmpop,
    ast.operator, ast.unaryop, ast.Attribute,
)  # fmt: skip


def _bounded_range(*bounds: int) -> range:
    made = range(*bounds)
    if len(made) > _RANGE:
        raise OverflowError
    return made


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of such a tensor."""
    return tuple(math.prod(shape[place + 1 :]) for place in range(len(shape)))


_MATHS = frozenset({"prod", "gcd", "isqrt", "cdiv", "log", "log2", "log10", "sqrt", "floor", "ceil"})
"""Functions of ``math`` or of a kernel language, called by their module."""
_FUNCTIONS: dict[str, Any] = {
    "len": len, "sum": sum, "all": all, "any": any, "min": min, "max": max, "abs": abs, "int": int, "bool": bool, "set": set,
    "sorted": sorted, "tuple": tuple, "list": list, "str": str, "range": _bounded_range, "prod": math.prod, "gcd": math.gcd,
    "bin": bin, "oct": oct, "hex": hex, "hash": hash, "map": map, "round": round, "reversed": reversed, "float": float,
    "isqrt": math.isqrt, "divmod": divmod, "enumerate": enumerate, "zip": zip, "cdiv": lambda a, b: -(-a // b),
    "strides": _contiguous, "log": math.log, "log2": math.log2, "log10": math.log10, "sqrt": math.sqrt, "floor": math.floor,
    "ceil": math.ceil,
}  # fmt: skip
_INVERSES: dict[str, Any] = {
    "log": math.exp, "log2": lambda x: 2.0**x, "log10": lambda x: 10.0**x, "sqrt": lambda x: x * x, "isqrt": lambda x: x * x,
}  # fmt: skip
_LARGEST = 100
"""What the inverses of logarithms are asked for."""
_METHODS = frozenset({
    "count", "index", "startswith", "endswith", "bit_count", "bit_length", "join", "find", "isdisjoint", "issubset", "is_integer",
})  # fmt: skip
"""Of numbers, texts and sequences, which give no larger ones."""


@dataclass(frozen=True)
class SizeCondition:
    """``text``: what is asked, of the shape of one tensor; ``hints``: lengths that it may be asked for."""

    text: str
    code: CodeType
    hints: tuple[int, ...] = ()

    def holds(self, shape: tuple[int, ...]) -> bool | None:
        """None where it cannot be asked of such a shape."""
        try:
            return bool(eval(self.code, {"__builtins__": {}, **_FUNCTIONS, _SHAPE: shape}))
        except (ArithmeticError, LookupError, ValueError, TypeError, NameError, AttributeError, RecursionError, MemoryError):
            return None


def size_conditions(source: str) -> tuple[SizeCondition, ...]:
    """The conditions on sizes by which branches on the host do more than raise an error."""
    known, found = parse_source(source), dict[str, SizeCondition]()
    helpers = dict(_helpers(known)) if known else {}
    for test, bound in _asked(known) if known else ():
        made = _Shapes(bound, helpers).visit(copy.deepcopy(test))
        if isinstance(made, ast.expr) and _is_plain(made) and _asks_lengths(made) and (text := ast.unparse(made)) not in found:
            code = compile(ast.fix_missing_locations(ast.Expression(made)), "condition", "eval")
            found[text] = SizeCondition(text, code, tuple(_hints(made)))
    return tuple(found.values())[:_MOST]


def _asked(known: ParsedSource) -> Iterator[tuple[ast.expr, dict[str, ast.expr]]]:
    """Tests of the host, and what kernels compare of what their first launch gives them, each with what names stand for."""
    kernels = {function.name: function for function in known.definitions if _is_jitted(function)}
    launched, of_the_file = set[str](), _bound(tuple(known.tree.body))
    for function, nodes in known.definitions.items():
        if _is_jitted(function):
            continue
        bound = {**of_the_file, **_bound(nodes)}
        yield from ((test, bound) for test in (*_tests(nodes), *_lookups(nodes, bound)))
        for node in nodes:
            match node:
                case ast.Call(func=ast.Subscript(value=ast.Name(id=name)), args=given) if name in kernels and name not in launched:
                    launched.add(name)
                    inside = known.definitions[kernels[name]]
                    arguments = dict(zip((a.arg for a in kernels[name].args.args), given, strict=False))
                    own = {**bound, **arguments, **_bound(inside)}
                    yield from ((one, own) for one in inside if isinstance(one, ast.Compare))


def _is_jitted(function: ast.FunctionDef) -> bool:
    return any("jit" in ast.unparse(decorator) for decorator in function.decorator_list)


def _helpers(known: ParsedSource) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Functions that return one expression of their parameters."""
    for function in known.definitions:
        if len(function.body) == 1 and isinstance(function.body[0], ast.Return) and function.body[0].value is not None:
            yield function.name, function


def _hints(test: ast.expr) -> Iterator[int]:
    """Numbers of the text, also those within texts, and those whose root or logarithm is one of it."""
    nodes = list(ast.walk(test))
    called = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)} & _INVERSES.keys()
    for node in nodes:
        if called and isinstance(node, ast.Constant) and isinstance(node.value, int | float) and 0 < node.value < _LARGEST:
            yield from (number for name in sorted(called) if 1 < (number := round(_INVERSES[name](node.value))) < _RANGE)
        if isinstance(node, ast.Constant) and isinstance(node.value, int | str) and not isinstance(node.value, bool):
            yield from (int(digits) for digits in re.findall(r"\d+", str(node.value)) if 1 < int(digits) < _RANGE)


def _tests(nodes: tuple[ast.AST, ...]) -> Iterator[ast.expr]:
    for node in nodes:
        match node:
            case ast.If(test=test, body=body) if not all(isinstance(one, ast.Raise | ast.Assert) for one in body):
                yield test
            case ast.IfExp(test=test) | ast.While(test=test):
                yield test


def _lookups(nodes: tuple[ast.AST, ...], bound: dict[str, ast.expr]) -> Iterator[ast.expr]:
    """What is looked up in a table of the text, as the question whether it is there."""
    for node in nodes:
        match node:
            case ast.Subscript(value=table, slice=key) | ast.Call(func=ast.Attribute(value=table, attr="get" | "pop"), args=[key, *_]):
                table = bound.get(table.id, table) if isinstance(table, ast.Name) else table
                if isinstance(table, ast.Dict) and table.keys and all(table.keys):
                    yield ast.Compare(key, [ast.In()], [table])


def _bound(nodes: tuple[ast.AST, ...]) -> dict[str, ast.expr]:
    """What names of a function stand for, where they are bound once."""
    found, times = dict[str, ast.expr](), dict[str, int]()
    for node in nodes:
        pairs: list[tuple[ast.expr, ast.expr]] = []
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=given)) if len(names) == len(given):
                pairs = list(zip(names, given, strict=True))
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=value):
                pairs = [(name, ast.Subscript(value, ast.Constant(i), ast.Load())) for i, name in enumerate(names)]
            case ast.Assign(targets=[target], value=value):
                pairs = [(target, value)]
            case ast.AugAssign(target=ast.Name(id=name)) | ast.For(target=ast.Name(id=name)):
                times[name] = 2
        for target, value in pairs:
            if isinstance(target, ast.Name):
                found[target.id], times[target.id] = value, times.get(target.id, 0) + 1
    return {name: value for name, value in found.items() if times[name] == 1}


class _Shapes(ast.NodeTransformer):
    """Puts one name in the place of every shape, and what they stand for in the place of names."""

    def __init__(self, bound: dict[str, ast.expr], helpers: dict[str, ast.FunctionDef], depth: int = 0) -> None:
        self._bound, self._helpers, self._depth = bound, helpers, depth

    def visit(self, node: ast.AST) -> Any:
        shape = ast.Name(_SHAPE, ast.Load())
        strides = ast.Call(ast.Name("strides", ast.Load()), [shape], [])
        match node:
            case ast.Attribute(attr="shape", value=ast.Name()) | ast.Call(func=ast.Attribute(attr="size"), args=[]):
                return shape
            case ast.Call(func=ast.Attribute(attr="size"), args=[index]):
                return ast.Subscript(shape, self.visit(index), ast.Load())
            case ast.Call(func=ast.Attribute(attr="stride"), args=[]):
                return strides
            case ast.Call(func=ast.Attribute(attr="stride"), args=[index]):
                return ast.Subscript(strides, self.visit(index), ast.Load())
            case ast.Call(func=ast.Attribute(attr="numel" | "nelement"), args=[]):
                return ast.Call(ast.Name("prod", ast.Load()), [shape], [])
            case ast.Dict(keys=keys) if keys and all(keys):
                return ast.Tuple([self.visit(key) for key in keys if key is not None], ast.Load())
            case ast.Attribute(attr="ndim") | ast.Call(func=ast.Attribute(attr="dim"), args=[]):
                return ast.Call(ast.Name("len", ast.Load()), [shape], [])
            case ast.Call(func=ast.Attribute(value=ast.Name(), attr=name), args=[_, *_] as arguments, keywords=[]) if name in _MATHS:
                return ast.Call(ast.Name(name, ast.Load()), [self.visit(argument) for argument in arguments], [])
            case ast.Name(id=name) if name in self._bound and self._depth < _DEPTH:
                return _Shapes(self._bound, self._helpers, self._depth + 1).visit(copy.deepcopy(self._bound[name]))
            case ast.Call(func=ast.Name(id=name), args=given, keywords=[]) if name in self._helpers and self._depth < _DEPTH:
                helper = self._helpers[name]
                arguments = [self.visit(argument) for argument in given]
                bound = dict(zip((a.arg for a in helper.args.args), arguments, strict=False))
                (returned,) = helper.body
                value = returned.value if isinstance(returned, ast.Return) else None
                return node if value is None else _Shapes(bound, self._helpers, self._depth + 1).visit(copy.deepcopy(value))
        return self.generic_visit(node)


def _is_plain(test: ast.expr) -> bool:
    """Whether it can be evaluated: of the shape alone, by what cannot grow without bounds."""
    nodes = list(ast.walk(test))
    own = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    names = {node.id for node in nodes if isinstance(node, ast.Name)} - own
    calls = {node.func for node in nodes if isinstance(node, ast.Call)}
    return (
        _SHAPE in names
        and len(nodes) < 200
        and names <= {_SHAPE, *_FUNCTIONS}
        and all(isinstance(node, _NODES) for node in nodes)
        and all((isinstance(f, ast.Name) and f.id in _FUNCTIONS) or (isinstance(f, ast.Attribute) and f.attr in _METHODS) for f in calls)
        and all(node in calls for node in nodes if isinstance(node, ast.Attribute))
        and all(_is_bounded(node) for node in nodes)
    )


def _asks_lengths(test: ast.expr) -> bool:
    """Whether more is asked than how many dimensions there are."""
    counted = {inner for node in ast.walk(test) if isinstance(node, ast.Call) and ast.unparse(node.func) == "len" for inner in node.args}
    return any(isinstance(node, ast.Name) and node.id == _SHAPE and node not in counted for node in ast.walk(test))


def _is_bounded(node: ast.AST) -> bool:
    match node:
        case ast.BinOp(op=ast.Pow() | ast.LShift(), left=left, right=right):
            most = _POWER if not _is_number(left) else _POWER_OF_NUMBER
            return isinstance(right, ast.Constant) and isinstance(right.value, int) and right.value <= most
        case ast.BinOp(op=ast.Mult(), left=left, right=right):
            return not any(isinstance(side, ast.Constant | ast.List | ast.Tuple) and not _is_number(side) for side in (left, right))
        case ast.Constant(value=value):
            return value is None or isinstance(value, int | float | str)
    return True


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)

