"""Tests whether integers hold a value: ``(chosen == i).any()``, ``counts[i] == 0``, ``(chosen == i).sum() > 0``.

They are those of mixtures of experts, of which a part may have no rows. Other questions are decisions like any other.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph, Node

from kernelllm.compiler import template_ops
from kernelllm.compiler.capture.decompositions.read_offsets import node_of

aten = torch.ops.aten
_SAME = (
    aten.view, aten.reshape, aten.squeeze, aten.unsqueeze, aten.alias, aten.detach, aten.clone, aten._to_copy, aten.lift_fresh_copy,
    torch.ops.prims.convert_element_type,
)  # fmt: skip
"""Operators that hand all numbers on."""
_AND = " & "
_SUMS = (aten.any, aten.sum, aten.count_nonzero)
_ANSWERS: dict[Any, tuple[int, bool]] = {
    aten.eq: (0, False), aten.ne: (0, True), aten.gt: (0, True), aten.ge: (1, True), aten.lt: (1, False), aten.le: (0, False),
}  # fmt: skip
"""Comparisons of a count: with which number, and what they give where there is something."""


def membership_test(tensor: torch.Tensor) -> tuple[bool, str] | None:
    """What the tensor's truth is where something was found, and what was looked for; None where it is no such question."""
    node = node_of(tensor)
    return None if node is None else _answer(node)


def positions_are_used(graph: Graph, wanted: set[str]) -> bool:
    """Whether the positions of all that was looked for, or of a part of it, are taken too: where there are none, no row is."""
    taken = [set(sought.split(_AND)) for n in graph.nodes if _packet(n) is aten.nonzero and (sought := _sought(n.args[0])) is not None]
    return all(any(set(sought.split(_AND)) <= parts for parts in taken) for sought in wanted)


def _answer(node: Any) -> tuple[bool, str] | None:
    node = _origin(node)
    packet = _packet(node)
    if packet in (aten.logical_not, aten.bitwise_not):
        inner = _answer(node.args[0])
        return None if inner is None else (not inner[0], inner[1])
    if packet in _ANSWERS and isinstance(node.args[1], int) and (sought := _counted(node.args[0])) is not None:
        number, answer = _ANSWERS[packet]
        return (answer, sought) if node.args[1] == number else None
    sought = _sought(node) if packet is aten.any else _counted(node)
    return None if sought is None else (True, sought)


def _counted(node: Any) -> str | None:
    """What a number counts."""
    node = _origin(node)
    if node.target is operator.getitem and _packet(node.args[0]) is aten.unbind:
        counts, place = _origin(node.args[0].args[0]), node.args[1]
    elif _packet(node) is aten.select and node.args[1] == 0:
        counts, place = _origin(node.args[0]), node.args[2]
    else:
        return _sought(node) if _packet(node) in (aten.sum, aten.count_nonzero) else None
    return f"{_origin(counts.args[0]).name} == {place}" if _packet(counts) in (aten.bincount, template_ops.register().bincount) else None


def _sought(node: Any) -> str | None:
    """What a mask, or what sums one up, looks for; None where whole numbers are not compared for equality."""
    node = _origin(node)
    while _packet(node) in _SUMS:
        node = _origin(node.args[0])
    if _packet(node) in (aten.bitwise_and, aten.logical_and):
        parts = [_sought(part) for part in node.args]
        return None if parts == [None, None] else _AND.join(p or _origin(n).name for p, n in zip(parts, node.args, strict=True))
    if _packet(node) is not aten.eq or not isinstance(node.args[1], int) or not _whole(node.args[0]):
        return None
    return f"{_origin(node.args[0]).name} == {node.args[1]}"


def _whole(node: Node) -> bool:
    dtype = node.meta["val"].dtype
    return not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)


def _packet(node: Any) -> Any:
    return getattr(getattr(node, "target", None), "overloadpacket", None)


def _origin(node: Any) -> Any:
    """What made the numbers that a node hands on."""
    while isinstance(node, Node) and node.args and _packet(node) in _SAME:
        node = node.args[0]
    return node
