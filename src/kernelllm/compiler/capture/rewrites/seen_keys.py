"""Which keys a query sees: a condition of the graph, taken apart into bounds of the key's position and conditions of other kinds."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from kernelllm.compiler.capture.graph_editor import CONVERT
from kernelllm.compiler.capture.rewrites.attention_pattern import constant
from kernelllm.compiler.capture.rewrites.element_operators import AND, COMPARISONS, NOT, OR, NotWritable, Piece, alike, plus
from kernelllm.compiler.capture.rewrites.score_expressions import Place, ScoreWriter, broadcast
from kernelllm.compiler.scored_text import ScoreCode

aten = torch.ops.aten
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_TRUTH: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_TRIANGLES = {aten.tril.default: "<=", aten.triu.default: ">="}


def add(code: ScoreCode, writer: ScoreWriter, node: Any, index: Place, holds: bool = True) -> None:
    """Keys are seen where a condition holds, or where it does not. Its statements go to the writer's open part. Raises NotWritable."""
    moved = writer.moved(node, index)
    if moved is not None:
        add(code, writer, *moved, holds)
        return
    target = node.target
    if target in NOT or target in (AND if holds else OR):
        for argument in node.args:
            add(code, writer, argument, broadcast(argument, index), holds != (target in NOT))
        return
    if target in COMPARISONS:
        sign = COMPARISONS[target]
        _compare(code, writer, node, index, sign if holds else _OPPOSITE[sign])
        return
    chosen = _choice(writer, node, index)
    if chosen is not None:
        condition, index, ways = chosen
        if bool(ways[0]) != bool(ways[1]):
            add(code, writer, condition, index, bool(ways[0]) == holds)
            return
    if target in _TRIANGLES and _is_true(node.args[0]) and len(index) >= 2:
        row, column = (writer.place(one) for one in index[-2:])
        shift = node.args[1] if len(node.args) > 1 else 0
        sign = _TRIANGLES[target]
        _bound(code, column, plus(row, writer.value(shift, ()), 1), sign if holds else _OPPOSITE[sign])
        return
    found = writer.value(node, index)
    if found.dtype != torch.bool:
        raise NotWritable("a mask of numbers")
    code.other.append(found.text if holds else f"({found.text} == 0)")


def _compare(code: ScoreCode, writer: ScoreWriter, node: Node, index: Place, sign: str) -> None:
    given: list[Any] = [*node.args]
    for at in (0, 1):
        number, tensor = _literal(given[1 - at]), given[at]
        if number is None or not isinstance(tensor, Node):
            continue
        chosen = _choice(writer, tensor, broadcast(tensor, index))
        if chosen is not None:
            condition, where, ways = chosen
            compared = [_TRUTH[sign](*((way, number) if at == 0 else (number, way))) for way in ways]
            if compared[0] != compared[1]:
                add(code, writer, condition, where, compared[0])
                return
        exact = tensor.meta["val"].dtype == torch.float32 or number == 0  # rounding keeps signs
        if tensor.target is CONVERT and exact and number.is_integer() and not tensor.args[0].meta["val"].is_floating_point():
            given[at], given[1 - at] = tensor.args[0], int(number)
    distance = given[0] if isinstance(given[0], Node) else None
    if distance is not None and distance.target is aten.abs.default and sign in ("<", "<="):
        inner = writer.value(distance.args[0], broadcast(distance.args[0], broadcast(distance, index)))
        limit = _operand(writer, given[1], index)
        if inner.places is not None and limit.places is not None and inner.places[0] and limit.whole:
            for side in (inner, plus(_ZERO, inner, -1)):
                _bound(code, side, limit, sign)
            return
    left, right = (_operand(writer, a, index) for a in given)
    writer.pairs |= {"t", "s"} <= left.of | right.of
    _bound(code, *alike(left, right), sign)


def _literal(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else constant(value)


def _choice(writer: ScoreWriter, node: Node, index: Place) -> tuple[Node, Place, list[float]] | None:
    """The condition by which a tensor is one of two numbers."""
    while (moved := (node.args[0], index) if node.target is CONVERT else writer.moved(node, index)) is not None:
        node, index = moved
    ways = [n for a in node.args[1:] if (n := constant(a)) is not None] if node.target is aten.where.self else []
    if len(ways) != 2:
        return None
    return node.args[0], broadcast(node.args[0], index), ways


_ZERO = Piece("0", frozenset(), torch.int64, (0, "0"))


def _operand(writer: ScoreWriter, argument: Any, index: Place) -> Piece:
    tensor = isinstance(argument, Node) and isinstance(argument.meta["val"], torch.Tensor)
    return writer.value(argument, broadcast(argument, index) if tensor else ())


def _bound(code: ScoreCode, left: Piece, right: Piece, sign: str) -> None:
    """Note a comparison: as a bound of the key's position where it is one."""
    text = f"({left.text} {sign} {right.text})"
    places = plus(left, right, -1).places if left.whole and right.whole else None
    if places is None or not places[0] or sign == "!=":
        code.other.append(text)
        return
    code.near.append(text)
    at, sign = (f"(0 - {places[1]})", sign) if places[0] == 1 else (places[1], _TURNED[sign])
    if sign in ("<", "<=", "=="):
        code.upper.append(at if sign != "<" else f"({at} - 1)")
    if sign in (">", ">=", "=="):
        code.lower.append(at if sign != ">" else f"({at} + 1)")


def _is_true(node: Node) -> bool:
    """Whether a tensor is full of what counts as true."""
    while node.target in (aten.expand.default, aten.clone.default) or str(node.target).startswith("prims.convert_element_type"):
        node = node.args[0]
    return node.target is aten.full.default and node.args[1] in (1, True) and node.meta["val"].dtype == torch.bool


__all__ = ["add"]
