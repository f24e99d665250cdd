"""Channels-last layouts where Inductor does not choose them: for convolution templates, and for 3-D convolutions."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import Any

import torch

from kernelllm.compiler import template_ops
from kernelllm.compiler.capture.graph_editor import Editor
from kernelllm.compiler.options import Options

_IMAGES = 4
"""Dimensions of a batch of images, for which Inductor chooses a layout."""
_VOLUMES = 5
"""Of a batch of volumes, for which it does not. On an H200 cuDNN took 1.4 to 16 times as long in torch's own layout."""
_HALF = (torch.float16, torch.bfloat16)


def prefer_channels_last(stack: ExitStack, options: Options) -> None:
    """While open, ``conv_relu`` asks for channels last where it is lowered, and gradients of convolutions do where the convolutions do.

    A gradient's input may be one of the graph's, in torch's layout: then torch leaves cuDNN, which took a quarter of the time of its own
    kernels for a depthwise window of 7 x 7.
    """
    from torch._inductor import ir, lowering
    from torch._inductor.virtualized import V

    aten = torch.ops.aten
    target = template_ops.register().conv_relu.default
    handler = lowering.fallback_handler(target, add_to_fallback_set=False)
    backward = lowering.lowerings[aten.convolution_backward.default]
    convolution = lowering.lowerings[aten.convolution.default]

    copies: dict[tuple[int, str], Any] = {}
    """Of inputs that lie otherwise: one for all that read it."""

    def laid_out(tensor: Any) -> Any:
        if tensor is None:
            return None
        require = ir.ExternKernel.require_channels_last if len(tensor.get_size()) <= _IMAGES else ir.ExternKernel.require_channels_last_3d
        if not isinstance(tensor.data.data, ir.InputBuffer):
            return require(tensor)
        key = id(V.graph), tensor.get_name()
        if key not in copies:
            copies[key] = require(tensor)
        return copies[key]

    def lower(x: Any, weight: Any, bias: Any, other: Any, *window: Any) -> Any:
        return handler(laid_out(x), laid_out(weight), bias, laid_out(other), *window)

    def lower_backward(grad: Any, x: Any, weight: Any, *window: Any) -> Any:
        if V.graph.layout_opt and len(x.get_size()) == _IMAGES:
            grad, x = ir.ExternKernel.require_channels_last(grad), laid_out(x)
        return backward(grad, x, weight, *window)

    def lower_convolution(x: Any, weight: Any, bias: Any, *window: Any) -> Any:
        rounds = x.get_dtype() in _HALF or (x.get_dtype() == torch.float32 and options.conv_tf32)
        if options.mixed and V.graph.layout_opt and rounds and len(x.get_size()) == _VOLUMES and window[-1] == 1:
            x.realize()
            x, weight = laid_out(x), laid_out(weight)
        if options.mixed and V.graph.layout_opt and len(x.get_size()) == len(weight.get_size()) == _IMAGES and _is_input(x):
            x = laid_out(x)  # another convolution may read it as well
        return convolution(x, weight, bias, *window)

    ours = {target: lower, aten.convolution_backward.default: lower_backward, aten.convolution.default: lower_convolution}
    for operator, lowered in ours.items():
        if operator in lowering.lowerings:
            stack.callback(lowering.lowerings.__setitem__, operator, lowering.lowerings[operator])
        else:
            stack.callback(lowering.lowerings.pop, operator)
        lowering.lowerings[operator] = lowered


def _is_input(tensor: Any) -> bool:
    from torch._inductor import ir

    return isinstance(getattr(tensor.data, "data", None), ir.InputBuffer)


def follow(graph: torch.fx.GraphModule) -> None:
    """Let the weights of each ``conv_relu``, and what is computed behind it, lie as its result does, in place, where that is no result of
    the graph.

    Regions of a long graph hand tensors on as the graph says. It was traced when the convolution had torch's own layout.
    """
    target = template_ops.register().conv_relu.default
    joined = list(graph.graph.find_nodes(op="call_function", target=target))
    behind = set(joined)
    results = graph.graph.output_node().all_input_nodes
    clone = torch.ops.aten.clone.default
    for node in joined:  # in order, as the file's text follows it
        weight: Any = node.args[1]
        if not weight.meta["val"].is_contiguous(memory_format=torch.channels_last):
            edit = Editor(graph, weight, None, Options())
            with graph.graph.inserting_before(node):
                made = edit.call(clone, weight, memory_format=torch.channels_last)
            node.update_arg(1, made)
    for node in graph.graph.nodes:
        if node.op == "call_function" and node not in results and not behind.isdisjoint(node.all_input_nodes):
            with suppress(RuntimeError):  # a view that is none of such memory: the region writes it out
                node.meta["val"] = Editor(graph, node, None, Options()).value(node.target, *node.args, **node.kwargs)
            behind.add(node)
