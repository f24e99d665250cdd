"""Gradients of two reads of one table are added up in one table of zeros, not in one each and then together.

    zeros(n, d).index_put([i], v, True) + zeros(n, d).index_put([j], w, True)   ->   zeros(n, d).index_put([cat(i, j)], cat(v, w), True)

In float32: in half precision the sums of each would have been rounded first.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from kernelllm.compiler.capture.graph_editor import Editor
from kernelllm.compiler.options import Options

aten = torch.ops.aten
_PUT, _MASKED = aten.index_put.default, aten._unsafe_masked_index_put_accumulate.default


def rewrite(graph: GraphModule, options: Options) -> None:
    """Replace such sums, in place; of three tables, the third is joined to the first two."""
    for node in list(graph.graph.find_nodes(op="call_function", target=aten.add.Tensor)):
        tables = [a for a in node.args if isinstance(a, Node) and _only_sums(a)]
        if len(tables) != 2 or tables[0] is tables[1] or node.kwargs or not _alike(*tables):
            continue
        with graph.graph.inserting_before(node):
            w = Editor(graph, node, None, options)
            w.called(tables[0].meta.get("original_aten", tables[0].target))
            parts = list(zip(*map(_rows, tables), strict=True))
            masks, places, values = ([one[0], one[1]] for one in parts)
            index = [w.call(aten.cat.default, places)]
            joined = w.call(aten.cat.default, values)
            zeros = tables[0].args[0]
            if tables[0].target is _MASKED:
                made = w.call(_MASKED, zeros, w.call(aten.cat.default, masks), index, joined)
            else:
                made = w.call(_PUT, zeros, index, joined, True)
        node.replace_all_uses_with(made)
        graph.graph.erase_node(node)
        for table in tables:
            graph.graph.erase_node(table)
    graph.graph.eliminate_dead_code()


def _only_sums(node: Node) -> bool:
    """Whether a table holds nothing but sums at places of its first dimension, and nothing else reads it."""
    if node.target not in (_PUT, _MASKED) or len(node.users) != 1 or node.meta["val"].dtype != torch.float32 or node.kwargs:
        return False
    if node.target is _PUT and (len(node.args) < 4 or not node.args[3]):
        return False
    zeros, (mask, places, values) = node.args[0], _rows(node)
    if not isinstance(zeros, Node) or zeros.target is not aten.full.default or zeros.args[1] != 0 or places is None:
        return False
    return all(one is None or _long_as(one, places) for one in (mask, values)) and values.meta["val"].dim() == node.meta["val"].dim()


def _rows(node: Node) -> tuple[Any, Any, Any]:
    """The mask if there is one, the places in the first dimension and the values of a sum; None for other places."""
    mask, (indices, values) = (node.args[1], node.args[2:4]) if node.target is _MASKED else (None, node.args[1:3])
    single = len(indices) == 1 and indices[0] is not None and indices[0].meta["val"].dim() == 1
    return mask, indices[0] if single else None, values


def _long_as(one: Node, places: Node) -> bool:
    value = one.meta["val"]
    return value.dim() > 0 and bool(statically_known_true(value.shape[0] == places.meta["val"].shape[0]))


def _alike(one: Node, other: Node) -> bool:
    """Whether both tables, and the rows that are put there, have the same sizes and types but for how many rows there are."""
    if one.target is not other.target or [str(n) for n in one.meta["val"].shape] != [str(n) for n in other.meta["val"].shape]:
        return False
    pairs = [(a.meta["val"], b.meta["val"]) for a, b in zip(_rows(one), _rows(other), strict=True) if a is not None]
    return all(a.dtype == b.dtype and [str(n) for n in a.shape[1:]] == [str(n) for n in b.shape[1:]] for a, b in pairs)


__all__ = ["rewrite"]
