"""Parts of a dimension that begin at a number read off a tensor: ``queue[:, ptr : ptr + n] = keys`` and ``torch.arange(past, past + n)``.

Their lengths are known where both ends hold the same numbers of tensors. The parts become indices, which stay on the device.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot

aten = torch.ops.aten
_SAME = (
    aten.view, aten.reshape, aten.squeeze, aten.unsqueeze, aten.alias, aten.detach, aten.clone, aten._to_copy,
    torch.ops.prims.convert_element_type,
)  # fmt: skip
"""Operators that hand a whole number on."""


def positions(part: Any) -> torch.Tensor | None:
    """The positions of a slice whose ends are numbers of tensors. None where it is another, or its length is unknown."""
    if not isinstance(part, slice) or part.step not in (None, 1) or not isinstance(part.start, torch.Tensor):
        return None
    return between(part.start, part.stop)


def between(start: torch.Tensor, stop: Any, **how: Any) -> torch.Tensor | None:
    """``torch.arange(start, stop)``; None where its length is unknown."""
    length = _difference(start, stop) if isinstance(stop, torch.Tensor) else None
    return None if length is None else torch.arange(length, **how) + start


def _difference(start: torch.Tensor, stop: torch.Tensor) -> Any:
    first, last = node_of(start), node_of(stop)
    if first is None or last is None:
        return None
    (numbers, fixed), (others, more) = _sum(first), _sum(last)
    return more - fixed if numbers == others else None


def node_of(tensor: torch.Tensor) -> Any:
    """The node of the graph that is traced; None for tensors from elsewhere."""
    mode = get_proxy_mode()
    held = torch._from_functional_tensor(tensor.elem) if isinstance(tensor, FunctionalTensor) else tensor
    slot: Any = get_proxy_slot(held, mode.tracer, None) if mode is not None else None
    return None if slot is None else slot.proxy.node


def _sum(value: Any) -> tuple[Counter[Any], Any]:
    """A number as a sum: how often which numbers of tensors are in it, and what is left, which is a size or a plain number."""
    while isinstance(value, Node) and _packet(value) in _SAME and value.args:
        value = value.args[0]
    if not isinstance(value, Node):
        return Counter(), value
    if isinstance(size := value.meta.get("val"), torch.SymInt):
        return Counter(), size
    packet = _packet(value)
    if packet not in (aten.add, aten.sub, aten.mul) or value.kwargs:
        return Counter({value: 1}), 0
    (numbers, fixed), (others, more) = map(_sum, value.args[:2])
    if packet is aten.mul:
        (held, fixed), times = ((numbers, fixed), more) if not others else ((others, more), fixed)
        if (numbers and others) or not isinstance(times, int):
            return Counter({value: 1}), 0
        return Counter({node: count * times for node, count in held.items()}), fixed * times
    sign = -1 if packet is aten.sub else 1
    total = Counter(numbers)
    total.update({node: sign * count for node, count in others.items()})
    return Counter({node: count for node, count in total.items() if count}), fixed + sign * more


def _packet(node: Node) -> Any:
    return getattr(node.target, "overloadpacket", None)
