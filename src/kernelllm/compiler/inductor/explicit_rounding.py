"""Casts to half precision round, in a module that has no half precision of its own: ``x.half().float()``, ``x.bfloat16() == x``.

Inductor computes half precision in float32 and rounds what it stores, which is as right for a model in half precision. Where all inputs and
parameters are wide, the module asks for the rounding itself, as one that emulates a quantised one. A view of the bits behind the cast keeps
it.
"""

from __future__ import annotations

import torch
from torch.fx import Graph, GraphModule, Node

from kernelllm.compiler.capture.captured import Captured
from kernelllm.compiler.capture.graph_editor import CONVERT, HALF

aten = torch.ops.aten
_WIDE = (torch.float32, torch.float64)


def keep(captured: Captured) -> GraphModule:
    """The graph with views of the bits behind casts of what is no parameter, changed in place."""
    graph = captured.graph.graph
    given = {n: n.meta.get("val") for n in graph.find_nodes(op="placeholder")}
    if any(isinstance(value, torch.Tensor) and value.dtype in HALF for value in given.values()):
        return captured.graph
    for node in graph.find_nodes(op="call_function", target=aten.full.default):
        if node.meta["val"].dtype in HALF and isinstance(node.args[1], int | float):
            node.args = (node.args[0], torch.tensor(node.args[1], dtype=node.meta["val"].dtype).item())
    state = {g.variable for g in captured.graph_inputs if g.kind in ("parameter", "buffer")}
    for node in graph.find_nodes(op="call_function", target=CONVERT):
        source = node.args[0]
        if node.meta["val"].dtype in HALF and source.meta["val"].dtype in _WIDE and source.name not in state:
            bits = _viewed(graph, node, torch.int16)
            rounded = _viewed(graph, bits, node.meta["val"].dtype)
            node.replace_all_uses_with(rounded, delete_user_cb=lambda user, bits=bits: user is not bits)
    return captured.graph


def _viewed(graph: Graph, source: Node, dtype: torch.dtype) -> Node:
    with graph.inserting_after(source):
        made = graph.call_function(aten.view.dtype, (source, dtype))
    made.meta["val"] = source.meta["val"].view(dtype)
    return made
