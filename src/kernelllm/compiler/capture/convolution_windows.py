"""Strides, padding and dilation of convolutions. Torch takes one number for all directions (``padding=(1,)`` of an image)."""

from __future__ import annotations

import torch
from torch.fx import GraphModule

_SETTINGS = (3, 4, 5, 7)
"""Where the operator has its stride, padding, dilation and the padding of its output."""


def write_out(graph: GraphModule) -> None:
    """Each convolution has a number for each direction, in place."""
    for node in graph.graph.find_nodes(op="call_function", target=torch.ops.aten.convolution.default):
        directions = node.meta["val"].dim() - 2
        for at in _SETTINGS:
            given = node.args[at]
            if isinstance(given, list | tuple) and len(given) == 1:
                node.update_arg(at, [given[0]] * directions)
