"""Results of slow functions (cosines, powers) are stored where many elements read them; Inductor would recompute them for each reader.

On an H100 the rotation of 64 heads by angles took 0.350 ms with cosines and sines in its kernel, and 0.136 with a table of them; a
product with powers of one number a channel 0.232 and 0.147. Exponentials, logarithms, sigmoids and error functions hide behind memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from kernelllm.compiler.capture.graph_editor import STORED

aten, prims = torch.ops.aten, torch.ops.prims
_SLOW = {aten.cos: 40, aten.sin: 40, aten.tan: 60, aten.atan2: 60, aten.pow: 70, aten.lgamma: 100, aten.digamma: 150}
"""About how many instructions each takes."""
VIEWS = (aten.unsqueeze, aten.expand, aten.view, aten.reshape, aten.permute, aten.slice, aten.squeeze, aten.select, aten.transpose)
_READERS = 8
"""Elements that read each result, from which on it is stored."""
_MUCH = 10**8
"""Instructions that are saved, some 3 us of an H100: fewer are not worth a launch."""


def mark(graph: Graph) -> None:
    """Mark, in ``meta``, the results to store. Sizes that vary mark nothing."""
    slow: dict[Node, Node] = {}  # what holds results of slow functions that are not stored, and the node that computed it
    costs: dict[Node, int] = {}  # that node to instructions for each element
    for node in graph.nodes:
        packet, size = getattr(node.target, "_overloadpacket", None), _elements(node)
        if node.op != "call_function" or size is None:
            continue
        held = list(dict.fromkeys(slow[source] for source in node.all_input_nodes if source in slow))
        if packet in VIEWS:
            slow |= {node: held[0]} if held else {}
            continue
        pointwise = packet in (aten.cat, prims.convert_element_type) or torch.Tag.pointwise in getattr(node.target, "tags", ())
        if not pointwise:
            continue
        for source in held:
            few = _elements(source)
            if few is not None and size >= _READERS * few and size * costs[source] >= _MUCH:
                source.meta[STORED] = True
        own = _SLOW[packet] if packet in _SLOW and not _plain_power(node) else 0
        if cost := own + sum(costs[source] for source in held if STORED not in source.meta):
            slow[node], costs[node] = node, cost


def _elements(node: Node) -> int | None:
    """How many a result has; None where that varies, or where it is no tensor."""
    value: Any = node.meta.get("val")
    return value.numel() if isinstance(value, torch.Tensor) and all(isinstance(n, int) for n in value.shape) else None


def _plain_power(node: Node) -> bool:
    """Whether it is a power that Inductor writes as products or roots."""
    exponent = node.args[1] if len(node.args) > 1 else None
    packet = getattr(node.target, "_overloadpacket", None)
    return packet is aten.pow and isinstance(exponent, int | float) and abs(exponent) in (0, 0.5, 1, 2, 3, 4)
