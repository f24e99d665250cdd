"""Conditions on sizes under which a graph holds, in terms that the written file can check."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import sympy
import torch
from sympy.core.relational import Relational
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from kernelllm.compiler.capture import derived_sizes, least_sizes
from kernelllm.compiler.capture.captured import Condition
from kernelllm.compiler.capture.size_sources import size_text

log = logging.getLogger(__name__)
_OFFSETS = 2**24
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_TORCH, _OURS = Path(torch.__file__).parent, Path(__file__).parents[2]


def written(env: ShapeEnv, expressions: Iterable[sympy.Basic], known: Collection[str]) -> tuple[Condition, ...]:
    """The conditions as comparisons of ``known`` sizes: computed sizes that the file does not have become what they are computed from."""
    meaning = {symbol: expression for expression, symbol in derived_sizes.table(env).items() if str(symbol) not in known}
    found = (_comparison(_expanded(part, meaning)) for e in expressions for part in sympy.And.make_args(e))
    return tuple(dict.fromkeys(c for c in found if c is not None))


def needed(guard: Any) -> sympy.Basic | None:
    """What a decision about sizes relies on; None for those that are about speed alone.

    Decisions of the problem's own code hold as they are. Those of torch's operators that compare sizes come out alike where the sizes
    are equal (a slice as long as its tensor), and dimensions of 1 do no harm where others were seen.
    """
    condition, frame = guard.expr, guard.sloc.framework_loc
    if isinstance(condition, sympy.Eq):
        return condition
    if frame is None or (not Path(frame.filename).is_relative_to(_TORCH) and not Path(frame.filename).is_relative_to(_OURS)):
        return condition if frame is not None else None
    if isinstance(condition, sympy.Ne) or frame.name == "conv" or "_prims_common" in frame.filename:
        return None
    weak = {sympy.StrictLessThan: sympy.Le, sympy.StrictGreaterThan: sympy.Ge}.get(type(condition))
    return weak(*condition.args) if weak else condition


def conditions(
    env: ShapeEnv, decided: Iterable[sympy.Basic], graph: torch.fx.GraphModule, known: Collection[str]
) -> tuple[Condition, ...]:
    """What the graph relies on: what was ``decided``, what its slices take, and what operators ask. Of lower bounds of one size the
    highest."""
    bounds = (*least_sizes.lower_bounds(env), *_from_slices(graph))
    found = (*written(env, [*decided, *map(env.replace, least_sizes.decided(env))], known), *_lower_bounds(env, bounds, known))
    most: dict[str, int] = {}
    for size, operator, bound in found:
        if operator == ">=" and bound.isdigit():
            most[size] = max(most.get(size, 0), int(bound))
    return tuple(dict.fromkeys(c for c in found if c[1] != ">=" or not c[2].isdigit() or most[c[0]] == int(c[2])))


def _lower_bounds(env: ShapeEnv, bounds: Iterable[tuple[sympy.Basic, int]], known: Collection[str]) -> Iterator[Condition]:
    meaning = {symbol: expression for expression, symbol in derived_sizes.table(env).items() if str(symbol) not in known}
    for size, least in bounds:
        whole = _expanded(env.replace(size), meaning)
        number, rest = whole.as_coeff_Add()
        if least > number and whole.free_symbols and {str(s) for s in whole.free_symbols} <= set(known):
            positive = least - number == 1 and rest.is_Mul and not rest.could_extract_minus_sign()
            for part in rest.args if positive else (rest,):  # a product is positive where all of its factors are
                if part.free_symbols:
                    yield size_text(part), ">=", str(least - number)


def _from_slices(graph: torch.fx.GraphModule) -> Iterator[tuple[sympy.Basic, int]]:
    """Conditions that tensors are as long as the slices and positions read off them ask for, where torch has not asked for that."""
    for node in graph.graph.nodes:
        if node.target in (torch.ops.aten.slice.Tensor, torch.ops.aten.select.int):
            size, length = max(_cut_off(node), _first(node), key=lambda part: part[1])
            if length:
                yield size, length


def _cut_off(node: torch.fx.Node) -> tuple[sympy.Basic, int]:
    """What a slice is long before a number is cut off, and that number: of a tensor of none torch's slice has no element, not -1."""
    if node.target is torch.ops.aten.slice.Tensor:
        size = node.meta["val"].shape[_dimension(node)]
        number, rest = size.node.expr.as_coeff_Add() if isinstance(size, torch.SymInt) else (sympy.Integer(0), None)
        if rest is not None and number.is_negative and rest.is_Symbol:
            return rest, int(-number)
    return sympy.Integer(0), 0


def _first(node: torch.fx.Node) -> tuple[sympy.Basic, int]:
    """A dimension of which elements are read, and up to which one. Torch takes it that a size which varies is at least 2, and asks for no
    guard; of where one element of more is, it asks whether the size is not below the index, for which :func:`needed` takes an equal
    one."""
    size = node.args[0].meta["val"].shape[_dimension(node)]
    if not isinstance(size, torch.SymInt):
        return sympy.Integer(0), 0
    if node.target is torch.ops.aten.select.int:
        index = node.args[2]
        return size.node.expr, 0 if not isinstance(index, int) else index + 1 if index >= 0 else -index
    numbers = [abs(n) for n in node.args[2:4] if isinstance(n, int) and abs(n) <= 2]
    length = max(numbers, default=0) if isinstance(node.meta["val"].shape[_dimension(node)], int) else 0
    expression = size.node.expr
    try:
        smallest = expression.xreplace(dict.fromkeys(expression.free_symbols, sympy.Integer(0)))
    except ZeroDivisionError:  # a quotient of sizes may be as small as 0
        smallest = sympy.Integer(0)
    return expression, length if smallest.is_Integer and smallest < length else 0


def _dimension(node: torch.fx.Node) -> int:
    return int(node.args[1]) if len(node.args) > 1 else 0


def solved(env: ShapeEnv, known: Collection[sympy.Symbol]) -> dict[sympy.Expr, sympy.Expr]:
    """Symbols that are in a computed size alone, which has since been found to be that symbol and a number: they follow from it."""
    found: dict[sympy.Expr, sympy.Expr] = {}
    for expression, symbol in derived_sizes.table(env).items():
        size, formula = env.replace(symbol), env.replace(expression)
        for unknown in size.free_symbols - known - found.keys():
            if (size - unknown).is_Integer and unknown not in formula.free_symbols:
                found[unknown] = formula - (size - unknown)
    return found


def merged(env: ShapeEnv, definitions: Mapping[sympy.Expr, sympy.Expr]) -> Iterator[sympy.Basic]:
    """Conditions that computed sizes equal what the code found them equal to. ``definitions``: those that the file computes, by symbol."""
    for expression, symbol in derived_sizes.table(env).items():
        size, formula = env.replace(symbol), env.replace(expression)
        if definitions.get(size) != formula and size != formula:
            yield sympy.Eq(formula, size, evaluate=False)


def _expanded(condition: sympy.Basic, meaning: Mapping[sympy.Symbol, sympy.Expr]) -> sympy.Basic:
    while hidden := {s: meaning[s] for s in condition.free_symbols if s in meaning and s not in meaning[s].free_symbols}:
        condition = condition.xreplace(hidden)
    return condition


def _comparison(condition: sympy.Basic) -> Condition | None:
    if condition in (sympy.true, sympy.false):
        return None
    if not isinstance(condition, Relational):
        log.info("A condition on sizes is not checked: %s", condition)
        return None
    if condition.rel_op == ">" and condition.rhs.is_Integer and condition.lhs.is_integer:
        condition = sympy.Ge(condition.lhs, condition.rhs + 1, evaluate=False)
    left, right = condition.args
    number, rest = right.as_coeff_Add()
    if number.is_Integer and abs(number) >= _OFFSETS and rest:  # a bound of offsets, as a number alone
        left, right = left - rest, number
    if condition.rel_op in (">=", "!=") and right.is_Integer:  # n + 2 >= 5
        number, left = left.as_coeff_Add()
        right -= number
    common = Counter(a for a in sympy.Mul.make_args(left) if a.is_Symbol) & Counter(sympy.Mul.make_args(right))
    left, right = (sympy.Mul(*(Counter(sympy.Mul.make_args(side)) - common).elements()) for side in (left, right))  # sizes are positive
    operator = condition.rel_op
    if all(side.could_extract_minus_sign() for side in (left, right)):
        left, right, operator = -left, -right, _TURNED.get(operator, operator)
    return size_text(left), operator, size_text(right)
