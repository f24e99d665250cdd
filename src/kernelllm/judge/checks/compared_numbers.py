"""Finds numbers that a candidate's source compares values, programs of a grid and very many elements with."""

from __future__ import annotations

import ast
import math
from collections.abc import Collection, Iterator

from kernelllm.judge.checks.parsed_source import ParsedSource, parse_source

_LEAST, _LARGE, _LARGEST = 16, 2**14, 2**31 - 2**16
"""A program's number says something from here on; numbers of elements lie between the others (beyond, whole numbers overflow)."""
_NARROW, _NARROW_TYPES = 2**15, frozenset({"int16", "uint16"})
"""What whole numbers of such a type do not hold: a program's number, for one."""
_MOST = 16
_EXACT = 64.0
"""Quarters up to 4 are tried in any case, and whole numbers in their place are sizes mostly."""
_OF_PROGRAMS = frozenset({"program_id", "num_programs"})
_BITS = ("bitcast", "view(torch.int", "view(dtype=torch.int")


def large_bounds(source: str) -> tuple[int, ...]:
    """Numbers of elements that sizes may be compared with, in ascending order."""
    known = parse_source(source)
    nodes, named = known.nodes if known else (), _named(known)
    bits = {id(node.right) for node in nodes if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr | ast.BitXor)}
    found = {value for node in _compares(known) for value in _wholes(node, named, bits)}
    ends = [node for node in nodes if isinstance(node, ast.Call) and is_end(node.func)]
    found |= {value for node in ends for argument in node.args if (value := whole_number(argument, named)) is not None}
    narrow = any(isinstance(node, ast.Attribute) and node.attr in _NARROW_TYPES for node in nodes)
    found |= {_NARROW} if narrow else set()
    return tuple(sorted(value for value in found if _LARGE < value < _LARGEST))


def program_numbers(source: str) -> tuple[int, ...]:
    """Numbers that a kernel compares a program's number, or that of all programs, with."""
    known, found = parse_source(source), set[int]()
    for function in known.definitions if known else ():
        inside = known.definitions[function] if known else ()
        of_programs = {name for name, value in _assigned(inside) if _asks_programs(value, frozenset())}
        for node in inside:
            if isinstance(node, ast.Compare) and _asks_programs(node, of_programs):
                found |= {value for value in _wholes(node, _named(known)) if value >= _LEAST}
    return tuple(sorted(found)[:_MOST])


def compared_values(source: str) -> tuple[float, ...]:
    """Numbers that values may be compared with, as ``x == 3.14``: those of comparisons, and of names that the file gives to one."""
    known = parse_source(source)
    found = dict[float, None]()
    for node in _compares(known):
        for part in ast.walk(node):
            match part:
                case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=float(value))):
                    found |= dict.fromkeys((-value, value))
                case ast.Constant(value=float(value)):
                    found |= {value: None}
                case ast.Name(id=name) if (number := _floats(known).get(name)) is not None:
                    found |= {number: None}
    return tuple(value for value in found if math.isfinite(value) and (abs(value) > 4 or value * 4 != int(value * 4)))[:_MOST]


def compared_bits(source: str) -> tuple[int, ...]:
    """Whole numbers that bits of values may be compared with, where the source looks at bits."""
    if not any(text in source for text in _BITS):
        return ()
    known = parse_source(source)
    return tuple(sorted({v for node in _compares(known) for v in _wholes(node, _named(known)) if _EXACT < v < 2**32}))[:_MOST]


def is_end(function: ast.expr) -> bool:
    """``min(n, 4096)`` is a comparison as well."""
    name = function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    return name in ("min", "max", "minimum", "maximum")


def _compares(known: ParsedSource | None) -> Iterator[ast.Compare]:
    yield from (node for node in (known.nodes if known else ()) if isinstance(node, ast.Compare))


def _assigned(nodes: tuple[ast.AST, ...]) -> Iterator[tuple[str, ast.expr]]:
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value


def _asks_programs(node: ast.AST, names: set[str] | frozenset[str]) -> bool:
    asked = (part for part in ast.walk(node) if isinstance(part, ast.Attribute | ast.Name))
    return any((part.attr if isinstance(part, ast.Attribute) else part.id) in (*_OF_PROGRAMS, *names) for part in asked)


def _wholes(node: ast.Compare, named: dict[str, int], but: Collection[int] = ()) -> Iterator[int]:
    for side in (node.left, *node.comparators):
        for part in (side, *ast.walk(side)):
            if isinstance(part, ast.expr) and id(part) not in but and (value := whole_number(part, named)) is not None:
                yield value


def whole_number(node: ast.expr, named: dict[str, int]) -> int | None:
    """A literal, a name that the file gives to one, or a product, power or shift of such."""
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.Constant(value=float(value)) if value == value // 1 and abs(value) < 2**62:
            return int(value)  # 1e7
        case ast.Name(id=name):
            return named.get(name)
        case ast.Call(args=[inner]):
            return whole_number(inner, named)  # tl.constexpr(9000)
        case ast.BinOp(left=left, op=ast.Mult() | ast.Pow() | ast.LShift() as op, right=right):
            first, second = whole_number(left, named), whole_number(right, named)
            if first is None or second is None or not (0 <= first < 2**32 and 0 <= second < 2**32):
                return None
            if isinstance(op, ast.Mult):
                return first * second
            return None if second > 40 else first**second if isinstance(op, ast.Pow) else first << second
    return None


def _named(known: ParsedSource | None) -> dict[str, int]:
    found = dict[str, int]()
    for name, value in _assigned(tuple(known.tree.body) if known else ()):
        if (number := whole_number(value, {})) is not None:
            found[name] = number
    return found


def _floats(known: ParsedSource | None) -> dict[str, float]:
    found = dict[str, float]()
    for name, value in _assigned(known.nodes if known else ()):
        inner = value.args[0] if isinstance(value, ast.Call) and len(value.args) == 1 else value
        if isinstance(inner, ast.Constant) and isinstance(inner.value, float):
            found[name] = inner.value
    return found
