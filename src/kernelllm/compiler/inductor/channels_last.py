"""Inductor lays out what our operators of channels-last convolutions read as it does for its own."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from kernelllm.compiler import template_ops


def wanted(stack: ExitStack) -> None:
    """While open, ``conv_relu`` asks for channels last where it is lowered."""
    from torch._inductor import ir, lowering
    from torch._inductor.virtualized import V

    target = template_ops.register().conv_relu.default
    plain = lowering.lowerings.get(target)
    handler = lowering.fallback_handler(target, add_to_fallback_set=False)

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

    if plain is None:
        stack.callback(lowering.lowerings.pop, target)
    else:
        stack.callback(lowering.lowerings.__setitem__, target, plain)
    lowering.lowerings[target] = lower
