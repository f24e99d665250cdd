"""Finds the numbers that a candidate's source compares sizes with.

Between two of them, at one of them, or where a remainder is one of them it may do something that it does at no size tried.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from typing import Any

from kernelllm.judge.checks.compared_numbers import is_end
from kernelllm.judge.checks.parsed_source import parse_source

_LEAST, _LARGEST = 16, 2**16
"""Bounds of numbers that sizes are compared with: below them are counts of dimensions, beyond are numbers of elements."""
_SOLVED, _SELDOM = range(17, 4097), 8
"""Sizes that are tried in a comparison, and the share of them for which it may hold: for more, any size will do."""
_WHOLE = {"int8": 128, "uint8": 256, "int16": 32768, "uint16": 65536}
_HALF = {"float16": 2048, "half": 2048, "bfloat16": 256}
"""Types, and the numbers from which not all positions are among theirs."""
_INEXACT = 41, 83, 47
"""Numbers of which some multiple, times their reciprocal in float32, is a little less than whole."""
_PERIODIC = ast.Mod | ast.BitAnd | ast.BitXor
_ARITHMETIC = ast.Add | ast.Sub | ast.Mult | ast.Mod | ast.FloorDiv | ast.BitAnd | ast.BitOr | ast.BitXor | ast.RShift


def compared_sizes(source: str) -> tuple[int, ...]:
    """The numbers that sizes are compared with, in ascending order: literals, products of them, and names that the file gives to one."""
    compares, named = _compares(source)
    found = {number(side, named) for node in compares for side in (node.left, *node.comparators)}
    known = parse_source(source)
    ends = [node for node in (known.nodes if known else ()) if isinstance(node, ast.Call) and is_end(node.func)]
    found |= {number(argument, named) for node in ends for argument in node.args}
    found |= {held for node in (known.nodes if known else ()) if (held := _holds(node)) is not None}
    return tuple(sorted(value for value in found if value is not None and _LEAST <= value <= _LARGEST))


def _holds(node: ast.AST) -> int | None:
    """How many whole numbers the narrow type has that values become: positions beyond are others."""
    match node:
        case ast.Call(func=ast.Attribute(attr="to"), args=[ast.Attribute(attr=narrow), *_]):
            return _WHOLE.get(narrow)
        case ast.Call(func=ast.Attribute(attr="cast"), args=[*_, ast.Attribute(attr=narrow)]):
            return _WHOLE.get(narrow)
        case ast.Call(func=ast.Attribute(attr="arange"), keywords=given):
            named = [one.value.attr for one in given if one.arg == "dtype" and isinstance(one.value, ast.Attribute)]
            return (_WHOLE | _HALF).get(named[0]) if named else None
    return None


def exact_sizes(source: str) -> tuple[tuple[int, int], ...]:
    """Numbers that are compared for equality, as (0, number), and remainders that are, as (divisor, remainder): ``n % 32 == 17``."""
    compares, named = _compares(source)
    found: set[tuple[int, int]] = set()
    for node in compares:
        if len(node.comparators) != 1 or not isinstance(node.ops[0], ast.Eq | ast.NotEq):
            continue
        for side, other in ((node.left, node.comparators[0]), (node.comparators[0], node.left)):
            if (value := number(side, named)) is None:
                continue
            divisor = number(other.right, named) if isinstance(other, ast.BinOp) and isinstance(other.op, ast.Mod) else None
            if divisor is not None and 0 <= value < divisor <= _LARGEST:
                found.add((divisor, value))
            elif divisor is None and _LEAST <= value <= _LARGEST:
                found.add((0, value))
    listed = {value for node in _listed(source) if (value := number(node, named)) is not None}
    found |= {(0, value) for value in listed if _LEAST <= value <= _LARGEST} | {(0, value) for value in _few(compares, named)}
    found |= {(0, value) for node in compares for value in _solutions(node, named)}
    found |= {(0, max((by * k + left for k in range(1, 16)), key=_divisors)) for by, left in found if by > _SOLVED.stop // 4}
    return tuple(sorted(found | ({(0, value) for value in _INEXACT} if _divides_by_reciprocals(source) else set())))


def _divides_by_reciprocals(source: str) -> bool:
    """Whether a number is multiplied by a reciprocal and made whole, as ``(i * (1.0 / columns)).to(tl.int32)``."""
    known = parse_source(source)
    nodes = known.nodes if known is not None else ()
    reciprocal = any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div) and _is_one(n.left) for n in nodes)
    return reciprocal and any(_made_whole(node) for node in nodes)


def _is_one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 1


def _made_whole(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.BinOp(op=ast.Mult())), args=[ast.Attribute(attr="int32" | "int64")]):
            return True
        case ast.Call(func=ast.Attribute(attr="floor" | "cast"), args=[ast.BinOp(op=ast.Mult()), *_]):
            return True
    return False


def _solutions(node: ast.Compare, named: dict[str, int]) -> list[int]:
    """Numbers for which a comparison of what is computed from one number holds, as ``n * 7 % 96 == 5`` or ``rows * columns // 32 == 9``:
    the smallest, and those with most divisors, which a product of sizes may be. None where it holds for many, or for none."""
    unknown: dict[str, ast.expr] = {}
    test = _Unknown(named, unknown).visit(copy.deepcopy(node))
    inside = [part.op for part in ast.walk(test) if isinstance(part, ast.BinOp)]
    exact = all(isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for op in node.ops)
    if len(unknown) != 1 or not any(exact or isinstance(op, _PERIODIC) for op in inside) or _is_multiple(node, named):
        return []
    code = compile(ast.fix_missing_locations(ast.Expression(test)), "comparison", "eval")
    try:
        found = [bool(eval(code, {"__builtins__": {}, "n": n})) for n in _SOLVED]
    except (ArithmeticError, ValueError, TypeError):
        return []
    seldom = sum(found) * 2 <= len(found)
    holds = [n for n, held in zip(_SOLVED, found, strict=True) if held == seldom]
    if not holds or len(holds) * _SELDOM > len(found):
        return []
    return [holds[0], *sorted(holds, key=lambda n: -sum(n % d == 0 for d in range(2, 64)))[:2]]


def _divisors(number: int) -> int:
    """How many small ones it has: as many ways to be a product of sizes."""
    return sum(number % divisor == 0 for divisor in range(2, 64))


def _is_multiple(node: ast.Compare, named: dict[str, int]) -> bool:
    """``n % 64 == 0``, as many honest files ask."""
    return isinstance(node.left, ast.BinOp) and isinstance(node.left.op, ast.Mod) and number(node.comparators[0], named) == 0


class _Unknown(ast.NodeTransformer):
    """Puts a name in the place of what is no number of the text, and of products of such."""

    def __init__(self, named: dict[str, int], unknown: dict[str, ast.expr]) -> None:
        self._named, self._unknown = named, unknown

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Compare | ast.cmpop | ast.operator | ast.expr_context) or (
            isinstance(node, ast.Tuple | ast.List | ast.Set) and node.elts
        ):
            return self.generic_visit(node)
        if not isinstance(node, ast.expr):
            return node
        if (value := number(node, self._named)) is not None:
            return ast.Constant(value=value)
        if isinstance(node, ast.BinOp) and isinstance(node.op, _ARITHMETIC) and not self._is_product(node):
            return self.generic_visit(node)
        self._unknown[ast.dump(node)] = node
        return ast.Name(id="n", ctx=ast.Load())

    def _is_product(self, node: ast.BinOp) -> bool:
        return isinstance(node.op, ast.Mult) and all(number(side, self._named) is None for side in (node.left, node.right))


def _listed(source: str) -> Iterator[ast.expr]:
    """Members of what something may be in (``n in (77, 133)``, ``range(70, 80)``), keys of tables, and cases."""
    known = parse_source(source)
    for node in known.nodes if known is not None else ():
        match node:
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[ast.Tuple() | ast.List() | ast.Set() as members]):
                yield from members.elts
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[ast.Call(func=ast.Name(id="range"), args=bounds)]):
                yield from bounds[:1] if len(bounds) > 1 else ()
            case ast.Dict(keys=keys):
                yield from (key for key in keys if key is not None)
            case ast.MatchValue(value=value):
                yield value


def _few(compares: list[ast.Compare], named: dict[str, int]) -> Iterator[int]:
    """Small numbers that a dimension's length is compared with, and what lies on the other side of these."""
    for node in compares:
        for op, side, other in zip(node.ops, (node.left, *node.comparators), node.comparators, strict=False):
            for value, length in ((number(other, named), side), (number(side, named), other)):
                if value is not None and 1 < value < _LEAST and _is_length(length):
                    yield value
                    yield from () if isinstance(op, ast.Eq | ast.NotEq) else (value + 1, value - 1)[: 2 if value > 2 else 1]


def _is_length(node: ast.expr) -> bool:
    """``x.shape[1]`` or ``x.size(1)``; a name may be a count of dimensions."""
    match node:
        case ast.Subscript(value=ast.Attribute(attr="shape")) | ast.Call(func=ast.Attribute(attr="size"), args=[_]):
            return True
    return False


def _compares(source: str) -> tuple[list[ast.Compare], dict[str, int]]:
    """All comparisons, and names that the file gives to numbers."""
    known = parse_source(source)
    return [node for node in (known.nodes if known else ()) if isinstance(node, ast.Compare)], named_numbers(source)


def named_numbers(source: str) -> dict[str, int]:
    """Names that a file gives to numbers."""
    known = parse_source(source)
    named: dict[str, int] = {}
    for node in known.tree.body if known else ():
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and (value := number(node.value, {})) is not None:
            named[node.targets[0].id] = value
    return named


def number(node: ast.expr, named: dict[str, int]) -> int | None:
    """What a number, a name of one, or a product or power of such is; None where it is something else."""
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            return named.get(name)
        case ast.BinOp(left=left, op=ast.Mult() | ast.Pow() as op, right=right):
            first, second = number(left, named), number(right, named)
            if first is None or second is None or not (0 <= second <= _LARGEST and 0 <= first <= _LARGEST):
                return None
            return first * second if isinstance(op, ast.Mult) else first**second if second <= _LEAST else None
    return None
