"""Results that a matrix product reads are stored once, and kernels lowered before the product read them too instead of recomputing.

Inductor lowers nodes in order, and gives a reader ahead of the product the arithmetic instead. In an iteration such as Muon's,
``x = a * x + f(x @ x.mT) @ x``, each round then repeats that of all rounds before, from the tensors of each.
"""

from __future__ import annotations

import torch
from torch.fx import Graph, Node

from kernelllm.compiler.capture.graph_editor import STORED, VIEWS

aten = torch.ops.aten
_PRODUCTS = {aten.mm, aten.addmm, aten.bmm, aten.baddbmm, aten.convolution}


def mark(graph: Graph) -> None:
    """Mark, in ``meta``, the results to store."""
    place = {node: at for at, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        if torch.Tag.pointwise not in getattr(node.target, "tags", ()) or not _as_large_as_a_source(node):
            continue
        readers = _readers(node)
        last = max((place[r] for r in readers if _is_product(r)), default=-1)
        if any(place[r] < last and not _is_product(r) for r in readers):
            node.meta[STORED] = True


def _as_large_as_a_source(node: Node) -> bool:
    """Whether reading the result takes no more than reading what it is made of."""
    shape = _shape(node)
    return shape is not None and any(_shape(n) == shape for n in node.all_input_nodes)


def _shape(node: Node) -> list[str] | None:
    """The sizes as text: to compare them as they are would decide something about sizes that nobody knows."""
    value = node.meta.get("val")
    return [str(size) for size in value.shape] if isinstance(value, torch.Tensor) else None


def _readers(node: Node) -> list[Node]:
    """What reads a node, by itself or as a view."""
    found: list[Node] = []
    for user in node.users:
        found += _readers(user) if getattr(user.target, "_overloadpacket", None) in VIEWS else [user]
    return found


def _is_product(node: Node) -> bool:
    return getattr(node.target, "_overloadpacket", None) in _PRODUCTS or getattr(node.target, "namespace", "") == "kernelllm"
