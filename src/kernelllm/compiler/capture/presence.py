"""Questions that a forward asks of whole numbers: whether any equals one. ``(chosen == i).any()``, ``counts[i] == 0``, ``count > 0``.

They are those of mixtures of experts, of which a part may have no rows. Questions about other numbers are decisions like any other.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot

from kernelllm.compiler import template_ops

aten = torch.ops.aten
_COUNTS = (aten.bincount, aten.sum, aten.count_nonzero, aten.histc)
_SAME = (
    aten.select, aten.slice, aten.view, aten.reshape, aten.squeeze, aten.unsqueeze, aten.alias, aten.detach, aten.clone, aten._to_copy,
    aten.lift_fresh_copy, aten.index, aten.unbind, aten.permute, aten.transpose, aten.expand, torch.ops.prims.convert_element_type,
)  # fmt: skip
"""Operators that hand numbers on."""
_ANSWERS: dict[Any, tuple[int, bool]] = {
    aten.eq: (0, False), aten.ne: (0, True), aten.gt: (0, True), aten.ge: (1, True), aten.lt: (1, False), aten.le: (0, False),
}  # fmt: skip
"""Comparisons of a count: with which number, and what they give where there is something."""


def asked(tensor: torch.Tensor) -> tuple[bool, Node] | None:
    """What the tensor's truth is where something was found, and the whole numbers among which; None where it is no such question."""
    mode = get_proxy_mode()
    held = torch._from_functional_tensor(tensor.elem) if isinstance(tensor, FunctionalTensor) else tensor
    slot: Any = get_proxy_slot(held, mode.tracer, None) if mode is not None else None
    return None if slot is None else _answer(slot.proxy.node)


def looked_up(graph: Graph, names: set[str]) -> bool:
    """Whether positions are looked up among each of these whole numbers: then rows are taken by them, and where there are none, none."""
    found: set[str] = set()
    for node in graph.nodes:
        if _packet(node) is aten.nonzero and (numbers := _numbers(node.args[0])) is not None:
            found.add(numbers.name)
    return names <= found


def _answer(node: Any) -> tuple[bool, Node] | None:
    node = _origin(node)
    packet = _packet(node)
    if packet in (aten.logical_not, aten.bitwise_not):
        inner = _answer(node.args[0])
        return None if inner is None else (not inner[0], inner[1])
    if packet in _ANSWERS and isinstance(node.args[1], int) and _counts(node.args[0]):
        number, answer = _ANSWERS[packet]
        numbers = _numbers(node.args[0])
        return (answer, numbers) if node.args[1] == number and numbers is not None else None
    if packet is aten.any or _counts(node):
        numbers = _numbers(node)
        return None if numbers is None else (True, numbers)
    return None


def _counts(node: Any) -> bool:
    node = _origin(node)
    return _packet(node) in (*_COUNTS, template_ops.register().bincount) and not _floats(node) and node.meta["val"].dtype is not torch.bool


def _numbers(node: Any) -> Node | None:
    """The whole numbers that were compared for equality, or counted; None where others were."""
    node = _origin(node)
    while _packet(node) in (aten.any, *_COUNTS, aten.eq, template_ops.register().bincount):
        if _packet(node) is not aten.any and _packet(node) not in _COUNTS and len(node.args) > 1 and isinstance(node.args[1], float):
            return None
        node = _origin(node.args[0])
    value = getattr(node, "meta", {}).get("val")
    whole = isinstance(node, Node) and isinstance(value, torch.Tensor) and not _floats(node) and value.dtype is not torch.bool
    return node if whole else None


def _floats(node: Node) -> bool:
    value = node.meta.get("val")
    return not isinstance(value, torch.Tensor) or value.is_floating_point() or value.is_complex()


def _packet(node: Any) -> Any:
    return getattr(getattr(node, "target", None), "overloadpacket", None)


def _origin(node: Any) -> Any:
    """What made the numbers that a node hands on. One of an operator's results stays that."""
    while isinstance(node, Node) and node.args:
        unbound = node.target is operator.getitem and _packet(node.args[0]) is aten.unbind
        if not unbound and _packet(node) not in _SAME:
            break
        node = node.args[0]
    return node
