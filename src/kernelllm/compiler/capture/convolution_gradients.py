"""The gradients of a convolution as convolutions themselves, so that the templates do them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from kernelllm.compiler.capture.graph_editor import Editor

aten = torch.ops.aten
_Window = tuple[list[Any], list[Any], list[Any]]
"""Stride, padding and dilation, one element a spatial dimension."""


def replace_gradients(w: Editor, grad: Node, x: Node, weight: Node, _: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
                      output_padding: Any, groups: Any, wanted: Sequence[bool]) -> None:
    """Put convolutions in the place of what is read of ``convolution_backward``. ``w``: the editor of the graph at that node."""
    spatial = weight.meta["val"].dim() - 2
    window: Any = tuple(list(v) * (spatial if len(v) == 1 else 1) for v in (stride, padding, dilation))
    makers: tuple[Callable[[], Node], ...] = (
        lambda: _of_input(w, grad, x, weight, window, transposed, groups),
        lambda: _of_weight(w, grad, x, weight, window, transposed, groups),
        lambda: w.call(aten.sum.dim_IntList, grad, [0, *range(2, spatial + 2)]),
    )
    for user in list(w.node.users):
        if user.target is operator.getitem and wanted[user.args[1]]:
            made = makers[user.args[1]]()
            user.replace_all_uses_with(made)
            w.graph.graph.erase_node(user)


def _of_input(w: Editor, grad: Node, x: Node, weight: Node, window: _Window, transposed: bool, groups: Any) -> Node:
    stride, padding, dilation = window
    tf32 = {"allow_tf32": w.options.conv_tf32}
    if transposed:
        return w.template("conv", grad, weight, None, stride, padding, dilation, groups, **tf32)
    extra = [_left_over(w, grad, x, weight, i, stride[i], padding[i], dilation[i]) for i in range(len(stride))]
    return w.template("conv_transpose", grad, weight, None, stride, padding, extra, dilation, groups, **tf32)


def _left_over(w: Editor, grad: Node, x: Node, weight: Node, dim: int, stride: Any, padding: Any, dilation: Any) -> Any:
    """How many of the input's last elements no window reaches: size - ((out - 1) * stride - 2 * padding + dilation * (k - 1) + 1)."""
    if stride == 1:
        return 0
    size, out, kernel = (w.size(t, dim + 2) for t in (x, grad, weight))
    reach = w.integer(operator.mul, w.integer(operator.sub, out, 1), stride)
    reach = w.integer(operator.sub, reach, w.integer(operator.mul, padding, 2))
    reach = w.integer(operator.add, reach, w.integer(operator.mul, w.integer(operator.sub, kernel, 1), dilation))
    return w.integer(operator.sub, w.integer(operator.sub, size, reach), 1)


def _of_weight(w: Editor, grad: Node, x: Node, weight: Node, window: _Window, transposed: bool, groups: Any) -> Node:
    """The smaller of the two tensors slides over the larger one; images take the place of channels."""
    stride, padding, dilation = window
    over, sliding = (grad, x) if transposed else (x, grad)
    images = w.call(aten.permute.default, over, _swapped(over)) if groups == 1 else _images_as_channels(w, over, groups)
    taps = w.call(aten.permute.default, sliding, _swapped(sliding))
    out = w.template("conv", images, taps, None, dilation, padding, stride, groups, allow_tf32=w.options.conv_tf32)
    for dim in range(len(stride)):
        if stride[dim] != 1:  # windows that no output element has
            out = w.call(aten.slice.Tensor, out, dim + 2, 0, w.size(weight, dim + 2))
    return w.call(aten.permute.default, out, _swapped(out))


def _images_as_channels(w: Editor, x: Node, groups: int) -> Node:
    """[N, groups * C, ...] as [C, groups * N, ...]."""
    images, channels, *sizes = (w.size(x, d) for d in range(x.meta["val"].dim()))
    each = w.integer(operator.floordiv, channels, groups)
    apart = w.call(aten.reshape.default, x, [images, groups, each, *sizes])
    moved = w.call(aten.permute.default, apart, [2, 1, 0, *range(3, len(sizes) + 3)])
    return w.call(aten.reshape.default, moved, [each, w.integer(operator.mul, images, groups), *sizes])


def _swapped(x: Node) -> list[int]:
    return [1, 0, *range(2, x.meta["val"].dim())]


__all__ = ["replace_gradients"]
