"""Batched products of one matrix each, as ``einsum`` writes every product of two matrices, become products of matrices.

These have better kernels, take over what stands around them, and are added to each other. Attention of one head is left: it is
recognised by its batched products. So are products of vectors, which have rules of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch.fx import GraphModule, Node

from kernelllm.compiler import template_ops
from kernelllm.compiler.capture.graph_editor import HEAVY, Editor
from kernelllm.compiler.options import Options

aten = torch.ops.aten
_WEIGHTS = (aten.amax.default, aten._softmax.default)
"""What shows that attention's weights are made."""
_FAR = 40
"""Operators between two products of attention, masks and penalties of the scores included."""


def rewrite(graph: GraphModule, options: Options) -> None:
    """Replace such products in place."""
    for node in [n for n in graph.graph.nodes if n.target is aten.bmm.default]:
        left, right = node.args
        if any(_size(n, 0) != 1 for n in (left, right)) or _size(left, 1) == 1 or _size(right, 2) == 1 or _attends(node):
            continue
        with graph.graph.inserting_before(node):
            w = Editor(graph, node, template_ops.register(), options)
            product = w.call(aten.mm.default, w.call(aten.squeeze.dim, left, 0), w.call(aten.squeeze.dim, right, 0))
            node.replace_all_uses_with(w.call(aten.unsqueeze.default, product, 0))
        graph.graph.erase_node(node)


def _size(node: Node, dim: int) -> int | None:
    size = node.meta["val"].shape[dim]
    return size if isinstance(size, int) else None


def _attends(node: Node) -> bool:
    """Whether weights stand between it and another batched product, before it or behind it."""
    return _meets(node, lambda n: n.users) or _meets(node, lambda n: n.all_input_nodes)


def _meets(node: Node, following: Callable[[Node], Iterable[Node]]) -> bool:
    seen, todo, weights, product = {node}, [node], False, False
    while todo and len(seen) < _FAR:
        for other in following(todo.pop(0)):
            if other in seen:
                continue
            seen.add(other)
            weights = weights or other.target in _WEIGHTS
            product = product or other.target is aten.bmm.default
            if not str(other.target).startswith(HEAVY):
                todo.append(other)
    return weights and product


__all__ = ["rewrite"]
