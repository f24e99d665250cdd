"""Results of slow functions (cosines, powers) are stored where many elements read them; Inductor would recompute them for each reader.

On an H100 the rotation of 64 heads by angles took 0.350 ms with cosines and sines in its kernel, and 0.136 with a table of them; a
product with powers of one number a channel 0.232 and 0.147. Exponentials, logarithms, sigmoids and error functions hide behind memory
where there is some to read: not in what is made of far fewer elements, such as sums over all pairs of a row's elements.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from kernelllm.compiler.capture.graph_editor import STORED

aten, prims = torch.ops.aten, torch.ops.prims
_SLOW = {aten.cos: 40, aten.sin: 40, aten.tan: 60, aten.atan2: 60, aten.pow: 70, aten.lgamma: 100, aten.digamma: 150}
"""About how many instructions each takes."""
_QUICK = {aten.exp: 10, aten.log: 10, aten.exp2: 5, aten.log2: 5, aten.sqrt: 10, aten.rsqrt: 5, aten.sigmoid: 16, aten.erf: 20,
          aten.tanh: 20, aten.log1p: 20, aten.expm1: 20}  # fmt: skip
_HIDDEN = 20
"""Instructions for each element that hide behind writing it."""
VIEWS = (aten.unsqueeze, aten.expand, aten.view, aten.reshape, aten.permute, aten.slice, aten.squeeze, aten.select, aten.transpose)
_REDUCTIONS = (aten.sum, aten.mean, aten.amax, aten.amin, aten.prod, aten.any, aten.var, aten.var_mean)
_READERS = 8
"""Elements that read each result, from which on it is stored."""
_MUCH, _MORE = 10**8, 4 * 10**8
"""Instructions that are saved, some 3 us of an H100: fewer are not worth a launch. Of quick functions more: what is stored for them may
keep kernels apart (an overlap of all boxes took 0.36 ms instead of 0.31)."""


def mark(graph: Graph) -> None:
    """Mark, in ``meta``, the results to store. Sizes that vary mark nothing."""
    slow, quick = _Costs(_SLOW), _Costs(_QUICK)
    most: dict[Node, int] = {}  # elements of the largest tensor that is read from memory for it
    for node in graph.nodes:
        packet, size = _packet(node), _elements(node)
        computed = node.op == "call_function" and size is not None and STORED not in node.meta
        if not computed or not (packet in VIEWS or _pointwise(node)):
            most[node] = size or 0
            continue
        most[node] = max((most[source] for source in node.all_input_nodes), default=0)
        if packet in VIEWS:
            slow.pass_on(node)
            quick.pass_on(node)
            continue
        assert size is not None
        slow.read(node, size, 0, _MUCH)
        if size >= _READERS * most[node]:
            quick.read(node, size, 0 if _reduced(node) else _HIDDEN, _MORE)
        for costs in (slow, quick):
            costs.note(node)


class _Costs:
    """What the functions of a table cost in what is computed of their results."""

    def __init__(self, functions: dict[Any, int]) -> None:
        self.functions = functions
        self.held: dict[Node, Node] = {}
        """What holds results that are not stored, and the node that computed it."""
        self.costs: dict[Node, int] = {}
        """That node to instructions for each element."""

    def sources(self, node: Node) -> list[Node]:
        return list(dict.fromkeys(self.held[source] for source in node.all_input_nodes if source in self.held))

    def pass_on(self, node: Node) -> None:
        for source in self.sources(node)[:1]:
            self.held[node] = source

    def read(self, node: Node, size: int, hidden: int, much: int) -> None:
        """Mark what ``node`` would compute for several of its elements. ``hidden``: instructions for each that take no time; ``much``: what
        is worth it. A single number is computed once in each program, beside what that reads."""
        for source in self.sources(node):
            few = _elements(source)
            if few is not None and few > 1 and size >= _READERS * few and size * (self.costs[source] - hidden) >= much:
                source.meta[STORED] = True

    def note(self, node: Node) -> None:
        own = self.functions.get(_packet(node), 0) if not _plain_power(node) else 0
        if cost := own + sum(self.costs[source] for source in self.sources(node) if STORED not in source.meta):
            self.held[node], self.costs[node] = node, cost


def _pointwise(node: Node) -> bool:
    return _packet(node) in (aten.cat, prims.convert_element_type) or torch.Tag.pointwise in getattr(node.target, "tags", ())


def _reduced(node: Node) -> bool:
    """Whether no element of it is written: all that reads it is a sum, or reduced as well."""
    return bool(node.users) and all(_packet(user) in _REDUCTIONS or (_alike(user, node) and _reduced(user)) for user in node.users)


def _alike(user: Node, node: Node) -> bool:
    return (_pointwise(user) or _packet(user) in VIEWS) and _elements(user) == _elements(node)


def _packet(node: Node) -> Any:
    return getattr(node.target, "_overloadpacket", None)


def _elements(node: Node) -> int | None:
    """How many a result has; None where that varies, or where it is no tensor."""
    value: Any = node.meta.get("val")
    return value.numel() if isinstance(value, torch.Tensor) and all(isinstance(n, int) for n in value.shape) else None


def _plain_power(node: Node) -> bool:
    """Whether it is a power that Inductor writes as products or roots."""
    exponent = node.args[1] if len(node.args) > 1 else None
    return _packet(node) is aten.pow and isinstance(exponent, int | float) and abs(exponent) in (0, 0.5, 1, 2, 3, 4)
