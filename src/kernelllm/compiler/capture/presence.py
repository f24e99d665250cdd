"""Questions that a forward asks of a tensor's values: whether anything was found. ``mask.any()``, ``count == 0``, ``count > 0``."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot

from kernelllm.compiler import template_ops

aten = torch.ops.aten
_COUNTS = (aten.bincount, aten.sum, aten.count_nonzero, aten.histc)
_SAME = (
    aten.select, aten.slice, aten.view, aten.reshape, aten.squeeze, aten.unsqueeze, aten.alias, aten.detach, aten.clone, aten._to_copy,
    aten.lift_fresh_copy, aten.index, aten.unbind, torch.ops.prims.convert_element_type,
)  # fmt: skip
"""Operators that hand numbers on."""
_ANSWERS: dict[Any, tuple[int, bool]] = {
    aten.eq: (0, False), aten.ne: (0, True), aten.gt: (0, True), aten.ge: (1, True), aten.lt: (1, False), aten.le: (0, False),
}  # fmt: skip
"""Comparisons of a count: with which number, and what they give where there is something."""


def asked(tensor: torch.Tensor) -> bool | None:
    """What the tensor's truth is where something was found; None where it is no such question."""
    mode = get_proxy_mode()
    held = torch._from_functional_tensor(tensor.elem) if isinstance(tensor, FunctionalTensor) else tensor
    slot: Any = get_proxy_slot(held, mode.tracer, None) if mode is not None else None
    return None if slot is None else _answer(slot.proxy.node)


def _answer(node: Any) -> bool | None:
    node = _origin(node)
    packet = _packet(node)
    if packet is aten.any:
        return True
    if packet is aten.logical_not or packet is aten.bitwise_not:
        inner = _answer(node.args[0])
        return None if inner is None else not inner
    if packet in _ANSWERS:
        number, answer = _ANSWERS[packet]
        return answer if node.args[1] == number and _counts(node.args[0]) else None
    return True if _counts(node) else None


def _counts(node: Any) -> bool:
    node = _origin(node)
    value = getattr(node, "meta", {}).get("val")
    whole = isinstance(value, torch.Tensor) and not value.is_floating_point() and value.dtype is not torch.bool
    return whole and _packet(node) in (*_COUNTS, template_ops.register().bincount)


def _packet(node: Any) -> Any:
    return getattr(getattr(node, "target", None), "overloadpacket", None)


def _origin(node: Any) -> Any:
    while isinstance(node, Node) and node.args and (node.target is operator.getitem or _packet(node) in _SAME):
        node = node.args[0]
    return node
