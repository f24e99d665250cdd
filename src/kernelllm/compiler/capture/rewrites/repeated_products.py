"""A product that the forward computes twice, of the same operands, is computed once: modules call one layer for two of their terms.

So are reductions, sorts and the like, and what products read. What else is computed element by element stays as it is: a kernel that
computes it again may be faster than one that reads it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from kernelllm.compiler.capture.graph_editor import CONVERT, HEAVY

aten = torch.ops.aten
_CHEAP = (CONVERT, aten.cat.default, aten.constant_pad_nd.default, aten.index.Tensor, aten.gather.default, aten.embedding.default,
          aten.slice_scatter.default, aten.select_scatter.default, aten.clone.default, aten.repeat.default)  # fmt: skip
"""Moves of elements, which kernels that read the result do themselves."""


def merge(graph: GraphModule) -> None:
    """Replace later products that are equal to one before, in place."""
    first: dict[Any, Node] = {}
    same: dict[Node, Node] = {}
    """The first node that computes what a node does."""
    for node in list(graph.graph.nodes):
        same[node] = node
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
            first.clear()  # what is computed behind a write may read it
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload) or _once(node.target):
            continue
        known = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: same[n])
        try:
            same[node] = first.setdefault((node.target, _key(known)), node)
        except TypeError:  # an argument that has no hash
            continue
        if same[node] is not node and _stays(node, same[node]) and not (_given_out(node) and _given_out(same[node])):
            node.replace_all_uses_with(same[node])
    graph.graph.eliminate_dead_code()


def _stays(node: Node, before: Node) -> bool:
    """Whether a result is worth more than its place in memory, or has one anyway."""
    if str(node.target).startswith(HEAVY):
        return True
    if getattr(node.target, "is_view", False) or not node.all_input_nodes:
        return False
    if _read_by_products(node) and _read_by_products(before):
        return True
    return torch.Tag.pointwise not in getattr(node.target, "tags", ()) and node.target not in _CHEAP


def _read_by_products(node: Node) -> bool:
    """Whether a product reads it, by itself or as a view."""
    views = [user for user in node.users if getattr(user.target, "is_view", False)]
    return any(str(user.target).startswith(HEAVY) for user in node.users) or any(map(_read_by_products, views))


def _given_out(node: Node) -> bool:
    """Whether its memory is an output's: two of them lie apart."""
    return any(user.op == "output" or (getattr(user.target, "is_view", False) and _given_out(user)) for user in node.users)


def _once(operator: torch._ops.OpOverload) -> bool:
    """Whether two calls are not the same: it draws numbers, or writes."""
    return torch.Tag.nondeterministic_seeded in operator.tags or operator._schema.is_mutable


def _key(value: Any) -> Any:
    """Arguments as what compares equal for the same values of the same types alone."""
    if isinstance(value, tuple | list):
        return tuple(_key(v) for v in value)
    if isinstance(value, dict):
        return tuple((k, _key(value[k])) for k in sorted(value))
    return value if isinstance(value, Node) else (type(value), repr(value) if isinstance(value, float) else value)  # -0.0 == 0.0


__all__ = ["merge"]
