"""Constant folding: tensors that the forward makes from numbers alone are computed once, before Inductor sees them.

Tracing holds them on the CPU, where Inductor would leave what is computed from them to C++ kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import GraphModule, Node

aten = torch.ops.aten

MOST = 64
"""Constants of more elements than this stay as they are."""
AT_ONCE = 8
"""Inductor writes the values of a vector into its kernels up to this length."""


def fold(graph: GraphModule) -> None:
    """Replace, in place, what follows from constants alone by its value: one ``full``, or a vector of values in its shape.

    Vectors, ranges and fills made by the forward count as constants up to :data:`MOST` elements; a result of theirs that no
    tensor of the source went into is replaced only where it is a single element.
    """
    values: dict[Node, torch.Tensor] = {}
    wanted: dict[Node, None] = {}
    written: set[Node] = set()
    for node in graph.graph.nodes:
        value = _value(graph, node, values)
        if value is None or value.numel() > MOST or value.is_complex() or value.is_quantized or value.layout is not torch.strided:
            continue
        values[node] = value
        if node.op == "get_attr" and value.numel():
            written.add(node)
        elif any(n in written for n in node.all_input_nodes):
            written.add(node)
            wanted[node] = None
        elif node.all_input_nodes and value.numel() == 1:
            wanted[node] = None
    for node in wanted:
        if any(user not in wanted for user in node.users):
            with graph.graph.inserting_before(node):
                made = _made(graph, node, values[node])
            node.replace_all_uses_with(made, delete_user_cb=lambda user: user not in wanted)
    graph.graph.eliminate_dead_code()


def _value(graph: GraphModule, node: Node, known: dict[Node, torch.Tensor]) -> torch.Tensor | None:
    """What a node computes where that depends on nothing but constants."""
    if node.op == "get_attr":
        held = getattr(graph, str(node.target), None)
        real = isinstance(held, torch.Tensor) and not isinstance(held, torch._subclasses.FakeTensor) and held.device.type == "cpu"
        return held if real else None
    target = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims"):
        return None
    if target._schema.is_mutable or torch.Tag.nondeterministic_seeded in target.tags or any(n not in known for n in node.all_input_nodes):
        return None
    expected = node.meta.get("val")
    if not isinstance(expected, torch.Tensor) or any(not isinstance(d, int) for d in expected.shape) or expected.numel() > MOST:
        return None
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: known[n])
    try:
        with torch.no_grad():
            value = target(*args, **kwargs)
    except (RuntimeError, NotImplementedError, TypeError):  # the operator has no kernel for the CPU: it stays
        return None
    same = isinstance(value, torch.Tensor) and value.shape == expected.shape and value.dtype == expected.dtype
    return value.detach() if same and not value.is_meta else None  # there autograd asks for the shape of a product with zeros


def _made(graph: GraphModule, node: Node, value: torch.Tensor) -> Node:
    """Nodes before ``node`` that give its value without computing."""
    flat = value.reshape(-1)
    uniform = bool((flat == flat[0]).all())
    if uniform or value.numel() == 1:
        return _call(graph, node, aten.full.default, (list(value.shape), flat[0].item()), {
            "dtype": value.dtype, "device": value.device, "pin_memory": False,
        }, node.meta["val"].contiguous())
    parts = []
    for start in range(0, len(flat), AT_ONCE):
        name = next(n for n in _names() if not hasattr(graph, n))
        graph.register_buffer(name, flat[start : start + AT_ONCE].clone())
        part = graph.graph.get_attr(name)
        part.meta["val"] = node.meta["val"].new_empty((len(getattr(graph, name)),))
        parts.append(part)
    whole = parts[0]
    if len(parts) > 1:
        whole = _call(graph, node, aten.cat.default, (parts,), {}, node.meta["val"].new_empty((len(flat),)))
    if value.dim() == 1:
        return whole
    return _call(graph, node, aten.view.default, (whole, list(value.shape)), {}, node.meta["val"].contiguous())


def _names() -> Iterator[str]:
    count = 0
    while True:
        yield f"folded{count}"
        count += 1


def _call(graph: GraphModule, like: Node, target: Any, args: Any, kwargs: Any, value: Any) -> Node:
    made = graph.graph.call_function(target, args, kwargs)
    made.meta = {**like.meta, "val": value, "original_aten": target}
    return made
