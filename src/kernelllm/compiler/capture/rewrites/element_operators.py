"""Elementwise operators of the graph as expressions in Triton, for tiles of scores (:mod:`.score_expressions`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

aten = torch.ops.aten


class NotWritable(Exception):
    """An operator that has no form for one tile."""


@dataclass(frozen=True)
class Piece:
    """An expression, the positions that it depends on, and its type."""

    text: str
    of: frozenset[str]
    dtype: torch.dtype
    places: tuple[int, str] | None = None
    """For a whole number: how often the key's position is in it (-1, 0, 1), and the rest, which depends on the query's alone."""

    @property
    def whole(self) -> bool:
        """Whether it is an integer; a boolean is none."""
        return not self.dtype.is_floating_point and self.dtype != torch.bool

    @property
    def literal(self) -> bool:
        """Whether it is a whole number, written out."""
        return self.text.removeprefix("-").isdigit()


_SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
COMPARISONS = {getattr(getattr(aten, name), kind): sign for name, sign in _SIGNS.items() for kind in ("Tensor", "Scalar")}
AND = (aten.logical_and.default, aten.bitwise_and.Tensor)
OR = (aten.logical_or.default, aten.bitwise_or.Tensor)
_XOR = (aten.logical_xor.default, aten.bitwise_xor.Tensor)
NOT = (aten.logical_not.default, aten.bitwise_not.default)
_UNARY = {
    aten.tanh.default: "(1.0 - 2.0 / (tl.exp2({0} * 2.8853900817779268) + 1.0))",
    aten.exp.default: "tl.exp({0})", aten.exp2.default: "tl.exp2({0})", aten.log.default: "tl.log({0})", aten.log2.default: "tl.log2({0})",
    aten.log1p.default: "libdevice.log1p({0})", aten.sigmoid.default: "tl.sigmoid({0})", aten.sqrt.default: "tl.sqrt({0})",
    aten.rsqrt.default: "tl.rsqrt({0})", aten.reciprocal.default: "(1.0 / {0})", aten.sin.default: "tl.sin({0})",
    aten.cos.default: "tl.cos({0})", aten.floor.default: "tl.floor({0})", aten.ceil.default: "tl.ceil({0})",
    aten.erf.default: "tl.erf({0})",
}  # fmt: skip
"""Functions of numbers with a point. A score's error is added to it, so that of tanh near zero may be as large as elsewhere."""
_ANY_SIGN = {aten.neg.default: "(-{0})", aten.abs.default: "tl.abs({0})"}
_POWERS = {2: "({0} * {0})", 3: "({0} * {0} * {0})", 0.5: "tl.sqrt({0})", 1: "{0}", -1: "(1.0 / {0})", -0.5: "tl.rsqrt({0})"}


def plus(left: Piece, right: Piece, sign: int) -> Piece:
    """A sum or difference of whole numbers, with what it says of the key's position."""
    mark, of = "+" if sign > 0 else "-", left.of | right.of
    places = None
    if left.places is not None and right.places is not None:
        count = left.places[0] + sign * right.places[0]
        places = (count, f"({left.places[1]} {mark} {right.places[1]})") if abs(count) == 1 or "s" not in of else None
    return Piece(f"({left.text} {mark} {right.text})", of, torch.int64, places)


def converted(value: Piece, dtype: torch.dtype) -> Piece:
    """A value in another type; halves are float32 inside."""
    if dtype == torch.float64:
        raise NotWritable("float64")
    if dtype == value.dtype or (dtype.is_floating_point and value.dtype.is_floating_point):
        return value
    if dtype.is_floating_point:
        text = f"{value.text}.0" if value.literal else f"({value.text}).to(tl.float32)" if value.of else f"({value.text} * 1.0)"
        return Piece(text, value.of, torch.float32)
    if dtype in (torch.int64, torch.int32) and value.whole:
        return Piece(value.text, value.of, dtype, value.places)
    if dtype == torch.bool:
        return Piece(f"({value.text} != 0)", value.of, dtype)
    if dtype in (torch.int64, torch.int32) and value.of:
        return Piece(f"({value.text}).to(tl.int64)", value.of, dtype)
    raise NotWritable(str(dtype))


def text_of(node: Node, given: list[Any], dtype: torch.dtype) -> Piece:
    """What an operator makes of pieces. Raises NotWritable."""
    target, floating = node.target, dtype.is_floating_point
    allowed = {"rounding_mode"} if target is aten.div.Tensor_mode else set()
    if dtype == torch.float64 or set(node.kwargs) - allowed:
        raise NotWritable(str(target))
    pieces = [p for p in given if isinstance(p, Piece)]
    of = frozenset[str]().union(*(p.of for p in pieces))
    if target in COMPARISONS and len(pieces) == 2:
        left, right = alike(*pieces)
        return Piece(f"({left.text} {COMPARISONS[target]} {right.text})", of, torch.bool)
    if target in AND + OR + _XOR + NOT:
        return _logical(target, pieces, of, dtype)
    if target is aten.where.self and len(pieces) == 3:
        left, right = [converted(p, dtype) for p in pieces[1:]]
        return Piece(f"tl.where({pieces[0].text}, {left.text}, {right.text})", of, left.dtype)
    if target in (aten.add.Tensor, aten.sub.Tensor) and len(pieces) == 2:
        sign = 1 if target is aten.add.Tensor else -1
        if all(p.whole for p in pieces):
            return plus(pieces[0], pieces[1], sign)
        left, right = [converted(p, dtype) for p in pieces]
        return Piece(f"({left.text} {'+' if sign > 0 else '-'} {right.text})", of, left.dtype)
    if target in _ANY_SIGN and len(pieces) == 1 and pieces[0].dtype != torch.bool:
        if target is aten.neg.default and pieces[0].whole:
            return plus(Piece("0", frozenset(), torch.int64, (0, "0")), pieces[0], -1)
        return Piece(_ANY_SIGN[target].format(pieces[0].text), of, pieces[0].dtype)
    if floating:
        return _of_floats(target, given, [converted(p, dtype) for p in pieces], of)
    return _of_integers(node, pieces, of, dtype)


def _logical(target: Any, pieces: list[Piece], of: frozenset[str], dtype: torch.dtype) -> Piece:
    if dtype != torch.bool or any(p.dtype != torch.bool for p in pieces):
        raise NotWritable(str(target))
    if target in NOT:
        return Piece(f"({pieces[0].text} == 0)", of, dtype)
    sign = "&" if target in AND else "|" if target in OR else "!="
    left, right = (f"({p.text})" for p in pieces)
    return Piece(f"({left} {sign} {right})", of, dtype)


def _of_floats(target: Any, given: list[Any], pieces: list[Piece], of: frozenset[str]) -> Piece:
    kind = torch.float32
    if target in _UNARY and len(pieces) == 1:
        return Piece(_UNARY[target].format(pieces[0].text), of, kind)
    if target is aten.mul.Tensor and len(pieces) == 2:
        return Piece(f"({pieces[0].text} * {pieces[1].text})", of, kind)
    if str(target) == "prims.fma.default" and len(pieces) == 3:  # which Inductor defines
        return Piece(f"({pieces[0].text} * {pieces[1].text} + {pieces[2].text})", of, kind)
    if target is aten.div.Tensor and len(pieces) == 2:
        number = _constant(pieces[1])
        if number and abs(1 / number) > 1e-30:
            return Piece(f"({pieces[0].text} * {1 / number!r})", of, kind)
        return Piece(f"({pieces[0].text} / {pieces[1].text})", of, kind)
    if target in (aten.maximum.default, aten.minimum.default) and len(pieces) == 2:
        name = "maximum" if target is aten.maximum.default else "minimum"
        return Piece(f"tl.{name}({pieces[0].text}, {pieces[1].text}, propagate_nan=tl.PropagateNan.ALL)", of, kind)
    if target is aten.relu.default:
        return Piece(f"tl.maximum({pieces[0].text}, 0.0, propagate_nan=tl.PropagateNan.ALL)", of, kind)
    if target in (aten.clamp.default, aten.clamp_min.default, aten.clamp_max.default):
        return _clamped(target, given, pieces[0], of)
    if target is aten.pow.Tensor_Scalar and len(pieces) == 2 and _constant(pieces[1]) in _POWERS:
        return Piece(_POWERS[_constant(pieces[1]) or 0].format(pieces[0].text), of, kind)
    raise NotWritable(str(target))


def _clamped(target: Any, given: list[Any], value: Piece, of: frozenset[str]) -> Piece:
    low = given[1] if target is not aten.clamp_max.default and len(given) > 1 else None
    high = given[2] if target is aten.clamp.default and len(given) > 2 else given[1] if target is aten.clamp_max.default else None
    text = value.text
    for name, bound in (("maximum", low), ("minimum", high)):
        if bound is not None:
            if not isinstance(bound, Piece):
                raise NotWritable(str(target))
            bound = converted(bound, value.dtype) if value.dtype.is_floating_point else bound
            more = ", propagate_nan=tl.PropagateNan.ALL" if value.dtype.is_floating_point else ""
            text = f"tl.{name}({text}, {bound.text}{more})"
    return Piece(text, of, value.dtype)


def _of_integers(node: Node, pieces: list[Piece], of: frozenset[str], dtype: torch.dtype) -> Piece:
    """Whole numbers: products have 64 bits, as they may be larger than positions are."""
    target = node.target
    if dtype not in (torch.int64, torch.int32) or not all(p.whole for p in pieces):
        raise NotWritable(str(target))
    if target in (aten.clamp.default, aten.clamp_min.default, aten.clamp_max.default):
        bounds = pieces[1:]
        if len(bounds) != len([a for a in node.args[1:] if a is not None]):
            raise NotWritable(str(target))
        filled = iter(bounds)
        given = [pieces[0], *(next(filled) if a is not None else None for a in node.args[1:])]
        return _clamped(target, given, pieces[0], of)
    if len(pieces) != 2:
        raise NotWritable(str(target))
    left, right = pieces
    wide = f"({left.text}).to(tl.int64)" if left.of else f"({left.text})"
    if target is aten.mul.Tensor:
        wide = wide if left.of or not right.of else f"({right.text}).to(tl.int64)"
        other = right.text if wide != f"({right.text}).to(tl.int64)" else left.text
        return Piece(f"({wide} * {other})", of, dtype)
    if target in (aten.maximum.default, aten.minimum.default):
        name = "maximum" if target is aten.maximum.default else "minimum"
        return Piece(f"tl.{name}({left.text}, {right.text})", of, dtype)
    floors = target in (aten.floor_divide.default, aten.div.Tensor_mode) and node.kwargs.get("rounding_mode", "floor") == "floor"
    number = int(right.text) if right.literal else 0
    if number <= 0 or not left.of:
        raise NotWritable(str(target))
    shifted = f"({wide} - tl.where({left.text} < 0, {number - 1}, 0))" if left.text not in ("batch", "head", "t", "s") else f"({left.text})"
    if floors:
        return Piece(f"({shifted} // {number})", of, dtype)
    if target in (aten.remainder.Scalar, aten.remainder.Tensor):
        return Piece(f"({left.text} - {shifted} // {number} * {number})", of, dtype)
    raise NotWritable(str(target))


def alike(left: Piece, right: Piece) -> tuple[Piece, Piece]:
    """Both operands as floating-point numbers where one of them is."""
    if left.dtype.is_floating_point != right.dtype.is_floating_point:
        return converted(left, torch.float32), converted(right, torch.float32)
    return left, right


def _constant(piece: Piece) -> float | None:
    try:
        return float(piece.text)
    except ValueError:
        return None


__all__ = ["AND", "COMPARISONS", "NOT", "OR", "NotWritable", "Piece", "alike", "converted", "plus", "text_of"]
