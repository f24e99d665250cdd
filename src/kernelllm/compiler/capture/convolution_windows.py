"""What convolutions are given, in one form: torch takes one number for all directions (``padding=(1,)`` of an image), and any bias."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from kernelllm.compiler import template_ops
from kernelllm.compiler.capture.graph_editor import Editor
from kernelllm.compiler.options import Options

_SETTINGS = (3, 4, 5, 7)
"""Where the operator has its stride, padding, dilation and the padding of its output."""


def write_out(graph: GraphModule, options: Options) -> None:
    """Each convolution has a number for each direction, and a bias whose elements lie side by side, in place."""
    for node in graph.graph.find_nodes(op="call_function", target=torch.ops.aten.convolution.default):
        directions = node.args[1].meta["val"].dim() - 2  # the weight's: an input may lack the batch
        for at in _SETTINGS:
            given = node.args[at]
            if isinstance(given, list | tuple) and len(given) == 1:
                node.update_arg(at, [given[0]] * directions)
        bias = node.args[2]
        if isinstance(bias, Node) and bias.meta["val"].stride() != (1,):  # a column of a matrix
            with graph.graph.inserting_before(node):
                edit = Editor(graph, node, template_ops.register(), options)
                node.update_arg(2, edit.call(torch.ops.aten.clone.default, bias, memory_format=torch.contiguous_format))
