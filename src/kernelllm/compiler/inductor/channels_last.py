"""Inductor lays out what our operators of channels-last convolutions read as it does for its own."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch

from kernelllm.compiler import template_ops

_IMAGES = 4
"""Dimensions of a batch of images, for which Inductor chooses a layout."""


def wanted(stack: ExitStack) -> None:
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

    copies: dict[tuple[int, str], Any] = {}
    """Of inputs that lie otherwise: one for all that read it."""

    def laid_out(tensor: Any) -> Any:
        if tensor is None or not isinstance(tensor.data.data, ir.InputBuffer):
            return None if tensor is None else ir.ExternKernel.require_channels_last(tensor)
        key = id(V.graph), tensor.get_name()
        if key not in copies:
            copies[key] = ir.ExternKernel.require_channels_last(tensor)
        return copies[key]

    def lower(x: Any, weight: Any, bias: Any, other: Any, *window: Any) -> Any:
        return handler(laid_out(x), laid_out(weight), bias, laid_out(other), *window)

    def lower_backward(grad: Any, x: Any, weight: Any, *window: Any) -> Any:
        if V.graph.layout_opt and len(x.get_size()) == _IMAGES:
            grad, x = ir.ExternKernel.require_channels_last(grad), laid_out(x)
        return backward(grad, x, weight, *window)

    for operator, lowered in ((target, lower), (aten.convolution_backward.default, lower_backward)):
        if operator in lowering.lowerings:
            stack.callback(lowering.lowerings.__setitem__, operator, lowering.lowerings[operator])
        else:
            stack.callback(lowering.lowerings.pop, operator)
        lowering.lowerings[operator] = lowered
