"""Store-to-load forwarding for slices of a stacked tensor that the forward writes in turn, such as each layer's part of one cache.

Tracing makes of ``cache[i].mul_(x)`` a copy of the whole cache with another slice, out of which ``cache[i]`` is read again. Here a slice
that was written is what was written, and one that was not is read off the cache itself. So nothing reads the copies in between. What goes
back to an input in the end is written there slice by slice (:mod:`kernelllm.compiler.inductor.in_place_slices`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from kernelllm.compiler.capture.graph_editor import Editor
from kernelllm.compiler.options import Options

aten = torch.ops.aten
_WRITE = aten.select_scatter.default


def read_through(graph: GraphModule, options: Options) -> None:
    """Replace what is read, and the copies of which every slice was written, in place."""
    for node in graph.graph.find_nodes(op="call_function", target=aten.select.int):
        source, dim, index = node.args
        base = source
        while base.target is _WRITE and base.args[2] == dim and _other(base.args[3], index):
            base = base.args[0]
        if base.target is _WRITE and tuple(base.args[2:]) == (dim, index):
            made = base.args[1]
        elif base is not source:
            with graph.graph.inserting_before(node):
                made = Editor(graph, node, None, options).call(aten.select.int, base, dim, index)
        else:
            continue
        node.replace_all_uses_with(made)
        graph.graph.erase_node(node)
    for node in reversed(graph.graph.find_nodes(op="call_function", target=_WRITE)):
        if node.users and not any(u.target is aten.copy_.default or (u.target is _WRITE and u.args[0] is node) for u in node.users):
            _join(graph, node, options)
    graph.graph.eliminate_dead_code()


def _other(one: Any, index: Any) -> bool:
    """Whether two positions are known to differ."""
    return isinstance(one, int) and isinstance(index, int) and min(one, index) >= 0 and one != index


def _join(graph: GraphModule, last: Node, options: Options) -> None:
    """The last copy as its slices side by side, where each of them was written."""
    dim, length = last.args[2], last.meta["val"].shape[last.args[2]]
    written: dict[Any, Any] = {}
    node: Any = last
    while node.target is _WRITE and node.args[2] == dim and isinstance(node.args[3], int) and node.args[3] >= 0:
        written.setdefault(node.args[3], node.args[1])
        node = node.args[0]
    dtype = last.meta["val"].dtype
    if not isinstance(length, int) or len(written) != length or length < 2 or any(s.meta["val"].dtype != dtype for s in written.values()):
        return
    with graph.graph.inserting_before(last):
        edit = Editor(graph, last, None, options)
        joined = edit.call(aten.cat.default, [edit.call(aten.unsqueeze.default, written[i], dim) for i in range(length)], dim)
    last.replace_all_uses_with(joined)
    graph.graph.erase_node(last)
