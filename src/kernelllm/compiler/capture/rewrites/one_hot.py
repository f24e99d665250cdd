"""A number that is scattered into each row of a constant tensor (gradients of losses over classes) becomes a comparison.

    full(0).scatter(1, labels[:, None], -1.0)       ->    where(arange(classes) == labels[:, None], -1.0, 0.0)

It may be a number of each row, as in the gradient of ``logits.gather(1, labels[:, None])``. The tensor need not be stored then.
A sum over the rows of a constant number, weighted row by row, is the weight times the number.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from kernelllm.compiler.capture.graph_editor import Editor
from kernelllm.compiler.options import Options

aten = torch.ops.aten


def rewrite(graph: GraphModule, options: Options) -> None:
    """Replace such scatters and the sums behind them, in place."""
    scatters = (aten.scatter.value, aten.scatter.src, aten.scatter_add.default)
    for node in [n for target in scatters for n in graph.graph.find_nodes(op="call_function", target=target)]:
        base, dim, index, number = node.args[:4]
        if node.kwargs or len(node.args) > 4 or base.target is not aten.full.default or not _one_each(base, index, dim):
            continue
        value, rest = node.meta["val"], base.args[1]
        if isinstance(number, Node) and (not _one_each(base, number, dim) or (node.target is aten.scatter_add.default and rest != 0)):
            continue
        with graph.graph.inserting_before(node):
            w = Editor(graph, node, None, options)
            made = _compared(w, base, dim % value.dim(), index, number)
        node.replace_all_uses_with(made)
        graph.graph.erase_node(node)
        if not isinstance(number, Node) and rest == 0 and value.dtype.is_floating_point:
            _sum_at_once(graph, made, dim % value.dim(), number, options)


def _one_each(base: Node, index: Node, dim: int) -> bool:
    """Whether each row gets exactly one number."""
    rows, places = base.meta["val"].shape, index.meta["val"].shape
    if not rows or len(rows) != len(places):
        return False
    wanted = [1 if at == dim % len(rows) else size for at, size in enumerate(rows)]
    return all(statically_known_true(size == other) for size, other in zip(places, wanted, strict=True))


def _compared(w: Editor, base: Node, dim: int, index: Node, number: Any) -> Node:
    value = base.meta["val"]
    how = {"dtype": index.meta["val"].dtype, "device": value.device, "requires_grad": False}
    places = w.call(torch.ops.prims.iota.default, w.size(base, dim), start=0, step=1, **how)
    for _ in range(value.dim() - 1 - dim):
        places = w.call(aten.unsqueeze.default, places, -1)
    found = w.call(aten.eq.Tensor, index, places)
    rest = w.call(aten.full.default, [], base.args[1], dtype=value.dtype, device=value.device)
    chosen = number if isinstance(number, Node) else w.call(aten.full.default, [], number, dtype=value.dtype, device=value.device)
    return w.call(aten.where.self, found, chosen, rest)


def _sum_at_once(graph: GraphModule, one_hot: Node, dim: int, number: Any, options: Options) -> None:
    """Sums over the rows of what a weight for each row makes of them. As in the sum, a weight that is infinite makes a NaN."""
    for product in [u for u in one_hot.users if u.target is aten.mul.Tensor]:
        weight = next((a for a in product.args if a is not one_hot), None)
        if not isinstance(weight, Node) or not _one_each(one_hot, weight, dim):
            continue
        shape = one_hot.meta["val"].shape
        for node in [u for u in product.users if u.target is aten.sum.dim_IntList]:
            if [d % len(shape) for d in node.args[1]] != [dim] or node.kwargs or node.meta["val"].dtype != product.meta["val"].dtype:
                continue
            with graph.graph.inserting_before(node):
                w = Editor(graph, node, None, options)
                made = w.call(aten.add.Tensor, w.call(aten.mul.Tensor, weight, number), w.call(aten.mul.Tensor, weight, 0))
                keeps = len(node.args) > 2 and node.args[2]
                made = made if keeps else w.call(aten.squeeze.dim, made, dim)
            node.replace_all_uses_with(made)
            graph.graph.erase_node(node)


__all__ = ["rewrite"]
