"""Casts to half precision round, in a module that has no half precision of its own: ``x.half().float()``, ``x.bfloat16() == x``.

Inductor computes half precision in float32 and rounds what it stores, which is as right for a model in half precision. Where all inputs and
parameters are wide, the module asks for the rounding itself, as one that emulates a quantised one. So it is with whole numbers and with
what follows from positions alone, in any module: of the positions 256 to 512 bfloat16 has every second one, and their sine shows it. A view
of the bits behind the cast keeps it.
"""

from __future__ import annotations

import torch
from torch.fx import Graph, GraphModule, Node

from kernelllm.compiler.capture.captured import Captured
from kernelllm.compiler.capture.graph_editor import CONVERT, HALF
from kernelllm.compiler.capture.rewrites.stacked_steps import is_elementwise

aten = torch.ops.aten
_WHOLE = (torch.int16, torch.int32, torch.int64)
_WIDE = (torch.float32, torch.float64, *_WHOLE)
"""Types with numbers that half precision rounds; those of bytes it holds."""


def hidden(captured: Captured) -> GraphModule:
    """The graph with these casts as another operator, changed in place: torch 2.11 takes casts there and back out of a graph."""
    for node in _casts(captured):
        node.target, node.args, node.kwargs = aten._to_copy.default, node.args[:1], {"dtype": node.args[1]}
    return captured.graph


def keep(captured: Captured) -> GraphModule:
    """The graph with views of the bits behind these casts, changed in place; none is hidden any more."""
    graph = captured.graph.graph
    for node in graph.find_nodes(op="call_function", target=aten._to_copy.default):
        if list(node.kwargs) == ["dtype"]:
            node.target, node.args, node.kwargs = CONVERT, (node.args[0], node.kwargs["dtype"]), {}
    for node in list(graph.nodes):
        _promote(graph, node)
    results = [n for n in _counted(graph) if n.meta["val"].dtype in HALF and n.target is not CONVERT and is_elementwise(n.target)]
    for node in [*_casts(captured), *results]:
        bits = _viewed(graph, node, torch.int16)
        rounded = _viewed(graph, bits, node.meta["val"].dtype)
        node.replace_all_uses_with(rounded, delete_user_cb=lambda user, bits=bits: user is not bits)
    for node in graph.find_nodes(op="call_function", target=aten.full.default):
        if node.meta["val"].dtype in HALF and isinstance(node.args[1], int | float):
            node.args = (node.args[0], torch.tensor(node.args[1], dtype=node.meta["val"].dtype).item())
    return captured.graph


def _casts(captured: Captured) -> list[Node]:
    """Casts to half precision of what is no parameter; where the graph is given half precision, of whole numbers and of what follows from
    positions alone."""
    graph = captured.graph.graph
    state = {g.variable for g in captured.graph_inputs if g.kind in ("parameter", "buffer")}
    casts = [n for n in graph.find_nodes(op="call_function", target=CONVERT) if n.meta["val"].dtype in HALF]
    found = [n for n in casts if n.args[0].meta["val"].dtype in _WIDE and n.args[0].name not in state]
    if not _has_half(graph):
        return found
    counted = _counted(graph)
    return [n for n in found if n.args[0].meta["val"].dtype in _WHOLE or n in counted]


def _counted(graph: Graph) -> dict[Node, None]:
    """What follows from positions and from no other tensor: eager rounds each of these results."""
    found: dict[Node, None] = {}
    others: set[Node] = set()
    for node in graph.nodes:
        if not isinstance(node.meta.get("val"), torch.Tensor):
            continue
        given = node.all_input_nodes
        if node.op in ("placeholder", "get_attr") or not others.isdisjoint(given):
            others.add(node)
        elif node.target in (torch.ops.prims.iota.default, aten.arange.start_step) or any(n in found for n in given):
            found[node] = None
    return found


def _promote(graph: Graph, node: Node) -> None:
    """Whole numbers beside half precision become such, by a cast that is seen: Inductor's own happens within an operator."""
    if node.op != "call_function" or node.target is CONVERT or not is_elementwise(node.target):
        return
    given = {n: n.meta["val"] for n in node.all_input_nodes if isinstance(n.meta.get("val"), torch.Tensor)}
    half = {value.dtype for value in given.values() if value.is_floating_point() or value.is_complex()}
    if len(half) != 1 or not half <= set(HALF):
        return
    for source in (n for n, value in given.items() if value.dtype in _WHOLE):
        with graph.inserting_before(node):
            made = graph.call_function(CONVERT, (source, *half))
        made.meta = {**node.meta, "val": given[source].to(*half)}
        node.replace_input_with(source, made)


def _has_half(graph: Graph) -> bool:
    given = [n.meta.get("val") for n in graph.find_nodes(op="placeholder")]
    return any(isinstance(value, torch.Tensor) and value.dtype in HALF for value in given)


def _viewed(graph: Graph, source: Node, dtype: torch.dtype) -> Node:
    with graph.inserting_after(source):
        made = graph.call_function(aten.view.dtype, (source, dtype))
    made.meta["val"] = source.meta["val"].view(dtype)
    return made
