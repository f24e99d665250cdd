"""Running sums and products of what is before each element: the first element goes in front of what is added up, not of the sums.

    cat((zeros(n, 1), x[:, :-1].cumsum(1)), 1)    ->    pad(x[:, :-1], (1, 0)).cumsum(1)
    pad(x.cumsum(1)[:, :-1], (1, 0))              ->    the same

The sums would be stored one element off, behind a kernel for the first, or be copied once more.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from kernelllm.compiler.capture.graph_editor import Editor
from kernelllm.compiler.options import Options

aten = torch.ops.aten
_FIRST = {aten.cumsum.default: 0, aten.cumprod.default: 1}
"""What is the same in front of each: nothing at all, or one times."""


def rewrite(graph: GraphModule, options: Options) -> None:
    """Replace such shifts, in place."""
    for target in (aten.cat.default, aten.constant_pad_nd.default):
        for node in graph.graph.find_nodes(op="call_function", target=target):
            dim, first, behind = _shift(node)
            if dim is None or not isinstance(behind, Node) or len(behind.users) > 1:
                continue
            part = behind.args[1:] if behind.target is aten.slice.Tensor else ()
            scan = behind.args[0] if part else behind
            if (part and (len(scan.users) > 1 or not _from_the_start(part, dim, scan))) or _FIRST.get(scan.target) != first:
                continue
            if scan.args[1] % scan.meta["val"].dim() != dim or scan.meta["val"].dtype != node.meta["val"].dtype:
                continue
            with graph.graph.inserting_before(node):
                w = Editor(graph, node, None, options)
                w.called(scan.meta.get("original_aten", scan.target))
                x = w.call(aten.slice.Tensor, scan.args[0], *part) if part else scan.args[0]
                ends = [0, 0] * (x.meta["val"].dim() - 1 - dim) + [1, 0]
                made = w.call(scan.target, w.call(aten.constant_pad_nd.default, x, ends, first), dim, **scan.kwargs)
            node.replace_all_uses_with(made)
            graph.graph.erase_node(node)
    graph.graph.eliminate_dead_code()


def _shift(node: Node) -> tuple[int | None, Any, Any]:
    """The dimension along which one number is put in front of a tensor, the number, and the tensor; None for the dimension otherwise."""
    rank = node.meta["val"].dim()
    if node.target is aten.constant_pad_nd.default:
        behind, ends, *value = node.args
        if list(ends[:-1]) == [0] * (len(ends) - 2) + [1] and ends[-1] == 0:
            return rank - len(ends) // 2, value[0] if value else 0, behind
        return None, None, None
    parts, dim = node.args[0], (node.args[1] if len(node.args) > 1 else 0) % rank
    if len(parts) != 2 or parts[0].target is not aten.full.default:
        return None, None, None
    front, behind = parts
    return (dim if statically_known_true(front.meta["val"].shape[dim] == 1) else None), front.args[1], behind


def _from_the_start(part: tuple[Any, ...], dim: int, scan: Node) -> bool:
    """Whether a slice leaves out elements at the end alone, of the dimension that is added up."""
    start, step = part[1] if len(part) > 1 else 0, part[3] if len(part) > 3 else 1
    return part[0] % scan.meta["val"].dim() == dim and start in (0, None) and step == 1


__all__ = ["rewrite"]
