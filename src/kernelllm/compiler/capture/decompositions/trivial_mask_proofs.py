"""Proves while a module is traced, from bounds of positions, that an attention mask hides nothing: attention then goes without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from kernelllm.compiler.capture.decompositions.read_offsets import node_of
from kernelllm.compiler.capture.decompositions.value_bounds import handed_on, range_of

aten = torch.ops.aten
_Range = tuple[Any, Any]

_ALWAYS: dict[Any, Callable[[_Range, _Range], Any]] = {
    aten.ge: lambda a, b: a[0] >= b[1], aten.gt: lambda a, b: a[0] > b[1],
    aten.le: lambda a, b: a[1] <= b[0], aten.lt: lambda a, b: a[1] < b[0],
}  # fmt: skip
"""When a comparison holds for all numbers between the bounds of its operands."""
_NEVER = {aten.ge: aten.lt, aten.lt: aten.ge, aten.gt: aten.le, aten.le: aten.gt}
_AND, _OR = (aten.logical_and, aten.bitwise_and, aten.mul), (aten.logical_or, aten.bitwise_or)
_NOT = (aten.logical_not, aten.bitwise_not)


def hides_nothing(mask: torch.Tensor, scores: tuple[Any, ...]) -> bool:
    """Whether attention with the mask is attention without it: it keeps, or adds zero to, every score. ``scores``: their shape."""
    widens = mask.dim() > len(scores) or not all(
        statically_known_true(n == 1) or statically_known_true(n == m)
        for n, m in zip(mask.shape[::-1], scores[::-1], strict=False)
    )  # fmt: skip
    node = None if widens else node_of(mask)
    if node is None:
        return False
    return _truth(node) is True if mask.dtype == torch.bool else _is_zero(node)


def _truth(node: Any) -> bool | None:
    """What a condition is for all of its elements; None where that is unknown or differs."""
    node = handed_on(node)
    if not isinstance(node, Node):
        return bool(node) if isinstance(node, bool | int) else None
    packet = getattr(node.target, "overloadpacket", None)
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dtype != torch.bool:
        return None
    if packet in _NEVER:
        return _compared(packet, node)
    if packet in (*_AND, *_OR):
        ways = [_truth(n) for n in node.args]
        decides = packet in _OR
        return decides if decides in ways else (not decides if ways == [not decides] * 2 else None)
    if packet in _NOT:
        inner = _truth(node.args[0])
        return None if inner is None else not inner
    if packet is aten.where:
        chosen = _truth(node.args[0])
        return None if chosen is None else _truth(node.args[1 if chosen else 2])
    bounds = range_of(node)
    return bool(bounds[0]) if bounds and isinstance(bounds[0], int) and bounds[0] == bounds[1] else None


def _compared(packet: Any, node: Node) -> bool | None:
    one, other = (range_of(n) for n in node.args)
    if one is None or other is None:
        return None
    if statically_known_true(_ALWAYS[packet](one, other)):
        return True
    return False if statically_known_true(_ALWAYS[_NEVER[packet]](one, other)) else None


def _is_zero(node: Any) -> bool:
    """Whether all numbers of a tensor are zero."""
    node = handed_on(node)
    if not isinstance(node, Node):
        return isinstance(node, int | float) and node == 0
    packet = getattr(node.target, "overloadpacket", None)
    if packet is aten.where:
        chosen = _truth(node.args[0])
        return chosen is not None and _is_zero(node.args[1 if chosen else 2])
    if packet is aten.masked_fill:
        filled = _truth(node.args[1])
        return filled is not None and _is_zero(node.args[2 if filled else 0])
    return packet in (aten.full, aten.scalar_tensor, aten.zeros, aten.zeros_like) and (
        packet in (aten.zeros, aten.zeros_like) or _is_zero(node.args[-1])
    )


__all__ = ["hides_nothing"]
