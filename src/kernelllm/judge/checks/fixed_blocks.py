"""Finds blocks of a fixed length that no grid is made of: a longer row may be cut off where they end."""

from __future__ import annotations

import ast

from kernelllm.judge.checks.compared_sizes import named_numbers, number
from kernelllm.judge.checks.parsed_source import ParsedSource, parse_source

_LEAST, _LARGEST = 16, 2**16
_OPTIONS = frozenset({"num_warps", "num_stages", "num_ctas", "maxnreg"})
_LOOPS = frozenset({"range", "static_range"})
_MOST = 4


def fixed_blocks(source: str) -> tuple[int, ...]:
    """What launches give by name as a number, where the grid is nothing but sizes; and such numbers times those of rounds of a loop."""
    known = parse_source(source)
    if known is None:
        return ()
    named, found = named_numbers(source), set[int]()
    for node in known.nodes:
        match node:
            case ast.Call(func=ast.Subscript(slice=grid), keywords=given) if _plain(grid, known):
                found |= {n for one in given if one.arg not in _OPTIONS and (n := number(one.value, named)) is not None and n >= _LEAST}
    if not found:
        return ()
    calls = (node for node in known.nodes if isinstance(node, ast.Call) and len(node.args) == 1)
    rounds = {number(call.args[0], named) for call in calls if _name(call.func) in _LOOPS}
    found |= {n * times for n in found for times in rounds if times is not None and times > 1}
    return tuple(sorted(n for n in found if n <= _LARGEST)[-_MOST:])


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _plain(grid: ast.expr, known: ParsedSource, depth: int = 0) -> bool:
    """Whether a grid, or one of its numbers, is sizes and products of them: nothing is divided into blocks."""
    match grid:
        case ast.Tuple(elts=parts):
            return all(_plain(part, known, depth) for part in parts)
        case ast.Name(id=name):
            values = [n.value for n in known.nodes if isinstance(n, ast.Assign) and name in {_name(t) for t in n.targets}]
            return depth < 3 and all(_plain(value, known, depth + 1) for value in values)
        case ast.Attribute() | ast.Constant() | ast.Subscript():
            return True
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _plain(left, known, depth) and _plain(right, known, depth)
        case ast.Call(func=ast.Attribute(attr="size" | "numel")):
            return True
    return False
