"""``max`` along a dimension whose indices nobody reads becomes ``amax``: a reduction of numbers, not of (value, index) pairs."""

from __future__ import annotations

import operator

import torch
from torch.fx import GraphModule

from kernelllm.compiler.capture.graph_editor import Editor
from kernelllm.compiler.options import Options

aten = torch.ops.aten
_ALONE = {aten.max.dim: aten.amax.default, aten.min.dim: aten.amin.default}


def rewrite(graph: GraphModule, options: Options) -> None:
    """Replace ``x.max(dim)[0]`` and ``x.min(dim)[0]``, in place. Both keep NaN."""
    for target, alone in _ALONE.items():
        for node in graph.graph.find_nodes(op="call_function", target=target):
            if not all(user.target is operator.getitem and user.args[1] == 0 for user in node.users):
                continue
            if node.kwargs or not node.args[0].meta["val"].dim():
                continue
            x, dim, *keepdim = node.args
            with graph.graph.inserting_before(node):
                made = Editor(graph, node, None, options).call(alone, x, [dim], bool(keepdim and keepdim[0]))
            for user in list(node.users):
                user.replace_all_uses_with(made)
                graph.graph.erase_node(user)
            graph.graph.erase_node(node)


__all__ = ["rewrite"]
