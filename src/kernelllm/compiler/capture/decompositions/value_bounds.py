"""Bounds of whole numbers of a graph that is traced, where they follow from sizes and constants: of positions that something is read at."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing, get_proxy_mode
from torch.fx.node import map_arg

from kernelllm.compiler.capture.decompositions.read_offsets import node_of

aten = torch.ops.aten
_FEW, _MOST = 64, 2**20
"""Operators and elements of constants that are computed while tracing."""
_SAME = (
    aten.view, aten.reshape, aten._unsafe_view, aten.squeeze, aten.unsqueeze, aten.expand, aten.alias, aten.detach, aten.clone,
    aten._to_copy, aten.lift_fresh_copy, aten.permute, aten.transpose, aten.t, aten.flip, aten.roll, aten.repeat,
    torch.ops.prims.convert_element_type, torch.ops.prims.rev,
)  # fmt: skip
"""Operators that hand all numbers on."""

def bounds_of(tensor: Any) -> tuple[Any, Any] | None:
    """The smallest and the largest of its numbers; None where they are unknown."""
    node = node_of(tensor)
    return None if node is None else range_of(node)


def handed_on(node: Any) -> Any:
    """What a node has all its numbers from."""
    while isinstance(node, Node) and node.args and (_packet(node) in _SAME or _is_whole(node)):
        node = node.args[0]
    return node


def range_of(node: Any, found: dict[Node, Any] | None = None) -> tuple[Any, Any] | None:
    """The smallest and the largest of whole numbers that follow from sizes and constants; None for others.

    ``found``: those of what was looked at for the same numbers, which is few.
    """
    found = {} if found is None else found
    if isinstance(node, Node):
        if node not in found:
            found[node] = None
            found[node] = _range(node, found) if len(found) <= _FEW else None
        known: tuple[Any, Any] | None = found[node]
        return known
    return _range(node, found)


def _range(node: Any, found: dict[Node, Any]) -> tuple[Any, Any] | None:
    whole = node
    node = handed_on(node)
    if not isinstance(node, Node):
        return (node, node) if isinstance(node, int) else None
    if isinstance(size := node.meta.get("val"), torch.SymInt):
        return size, size
    if node.op == "get_attr":
        return _known(getattr(getattr(get_proxy_mode(), "tracer", None), "root", None), str(node.target))
    packet = _packet(node)
    if packet in (torch.ops.prims.iota, aten.arange):
        return _counted(node)
    if packet in (aten.full, aten.scalar_tensor):
        value = _value(node.args[-1])
        return (value, value) if isinstance(value, int | torch.SymInt) else None
    if (chosen := _chosen(node)) is not None:
        return chosen
    rule = packet in _RANGES and not node.kwargs
    parts = [range_of(argument, found) if argument is not None else None for argument in node.args] if rule else []
    known = parts and all(part is not None or argument is None for part, argument in zip(parts, node.args, strict=True))
    return (_RANGES[packet](*parts) if known else None) or _computed(whole)


def _computed(node: Node) -> tuple[int, int] | None:
    """Of numbers that follow from constants alone: they are computed."""
    order: dict[Node, None] = {}
    if not _constant(node, order, set()):
        return None
    values: dict[Node, Any] = {}
    with disable_proxy_modes_tracing(), torch._C._DisableTorchDispatch(), torch._C._DisablePythonDispatcher():
        for one in order:
            args, kwargs = map_arg((one.args, one.kwargs), values.__getitem__)
            values[one] = one.target(*args, **kwargs)
        found = values[node]
        if not isinstance(found, torch.Tensor) or found.dtype.is_floating_point or found.is_complex() or not found.numel():
            return None
        low, high = found.aminmax()
        return int(low), int(high)


def _constant(node: Node, order: dict[Node, None], seen: set[Node]) -> bool:
    """Whether it does; ``order``: what is to be computed for it, each after what it needs. ``seen``: what was looked at, which is few."""
    if node in order:
        return True
    seen.add(node)
    plain = isinstance(node.target, torch._ops.OpOverload) or node.target is operator.getitem
    if not plain or len(seen) > _FEW or torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        return False
    held = node.meta.get("val")
    if isinstance(held, torch.SymInt) or (isinstance(held, torch.Tensor) and not _small(held)):
        return False
    if not all(_constant(one, order, seen) for one in node.all_input_nodes):
        return False
    order[node] = None
    return True


def _small(tensor: torch.Tensor) -> bool:
    """Whether it has few elements; of how many only values tell, fewer."""
    return all(isinstance(n, int) or not n.node.has_hint() for n in tensor.shape) and math.prod(
        n for n in tensor.shape if isinstance(n, int)) <= _MOST


def _chosen(node: Node) -> tuple[Any, Any] | None:
    """The bounds of the positions that an operator finds in a dimension."""
    if node.target is operator.getitem and node.args[1] == 1 and isinstance(node.args[0], Node):
        node = node.args[0]
    packet, given = _packet(node), node.args[0].meta.get("val") if node.args and isinstance(node.args[0], Node) else None
    if packet not in _CHOOSE or not isinstance(given, torch.Tensor) or not given.dim():
        return None
    dim = node.kwargs.get("dim", node.args[_CHOOSE[packet]] if len(node.args) > _CHOOSE[packet] else None)
    if not isinstance(dim, int) and packet in (aten.argmax, aten.argmin):
        return 0, given.numel() - 1
    return 0, given.shape[dim if isinstance(dim, int) else -1] - 1


def _is_whole(node: Node) -> bool:
    """Whether a slice is all of its tensor."""
    return _packet(node) is aten.slice and node.meta["val"].shape == node.args[0].meta["val"].shape


def _counted(node: Node) -> tuple[Any, Any] | None:
    numbers = [_value(a) for a in node.args]
    if _packet(node) is torch.ops.prims.iota:
        start, step = _value(node.kwargs.get("start", 0)), _value(node.kwargs.get("step", 1))
        return (start, start + step * (numbers[0] - 1)) if isinstance(step, int) and step > 0 else None
    if any(isinstance(n, float | torch.SymFloat) for n in numbers) or len(numbers) > 2:
        return None
    start, end = (0, numbers[0]) if len(numbers) == 1 else numbers
    return start, end - 1


def _scaled(one: Any, other: Any) -> tuple[Any, Any] | None:
    (low, high), by = (one, other[0]) if other[0] is other[1] else (other, one[0])
    if not isinstance(by, int) or (one[0] is not one[1] and other[0] is not other[1]):
        return None
    return (low * by, high * by) if by >= 0 else (high * by, low * by)


def _clamped(one: Any, lowest: Any = None, highest: Any = None) -> tuple[Any, Any]:
    low, high = one
    if lowest is not None:
        low, high = torch.sym_max(low, lowest[0]), torch.sym_max(high, lowest[1])
    return (low, high) if highest is None else (torch.sym_min(low, highest[0]), torch.sym_min(high, highest[1]))


_CHOOSE = {
    **dict.fromkeys((aten.argmax, aten.argmin, aten.max, aten.min, aten.sort, aten.argsort, aten.median, aten.nanmedian, aten.mode), 1),
    aten.topk: 2, aten.kthvalue: 2, aten.cummax: 1, aten.cummin: 1,
}  # fmt: skip
"""Operators that find positions in a dimension, and which argument it is."""

_RANGES: dict[Any, Callable[..., tuple[Any, Any] | None]] = {
    aten.add: lambda a, b: (a[0] + b[0], a[1] + b[1]), aten.sub: lambda a, b: (a[0] - b[1], a[1] - b[0]),
    aten.rsub: lambda a, b: (b[0] - a[1], b[1] - a[0]), aten.neg: lambda a: (-a[1], -a[0]), aten.mul: _scaled,
    aten.remainder: lambda _, by: (0, by[1] - 1) if by[0] is by[1] and (not isinstance(by[1], int) or by[1] > 0) else None,
    aten.clamp: _clamped, aten.clamp_min: lambda a, b: _clamped(a, b), aten.clamp_max: lambda a, b: _clamped(a, None, b),
}  # fmt: skip
"""What operators make of the bounds of their arguments: bounds that are met. Those of ``where`` may not be, since a condition that is about
the positions leaves out those beyond the table."""


def _known(root: Any, name: str) -> tuple[int, int] | None:
    held = getattr(root, name, None)
    if not isinstance(held, torch.Tensor) or isinstance(held, FakeTensor) or held.is_floating_point() or not held.numel():
        return None
    with disable_proxy_modes_tracing(), torch._C._DisableTorchDispatch():
        low, high = held.aminmax()
        return int(low), int(high)


def _value(argument: Any) -> Any:
    """A number of the graph: itself, or the size that a node stands for."""
    return argument.meta.get("val") if isinstance(argument, Node) else argument


def _packet(node: Node) -> Any:
    return getattr(node.target, "overloadpacket", None)
