"""Convolutions of a graph of fixed sizes that another operator computes faster, exactly.

A window that moves by its own size meets every element once: the convolution is a product of patches and weights. cuDNN is far from its
speed where there are few channels, as in the first layer of a vision transformer. One of each channel by itself is a sum over its
window, unless cuDNN has a fast kernel for it: over two dimensions, side by side, channels last. Large windows are a kernel of ours.
A convolution over one dimension is one over two with a height of 1: cuDNN has fast kernels for those, and Inductor lays them out
channels-last. Large grouped ones over one dimension are kernels of ours (0.6 TFLOP/s with cuDNN 9 on an H200, in half precision). Those
of one element stay beside small ones:
turning tensors took 0.06 of 0.37 ms of a speaker model's block. Small grouped ones and those transposed by a stride stay as they are,
and so do all others in their graph: tensors would be turned from one layout to the other and back.
Transposed ones of each channel by itself are sums, too, and so are those to one, two or three channels. A transposed convolution of
stride 1 is one by the weights from end to start, for which cuDNN has faster kernels.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node

from kernelllm.compiler import template_ops
from kernelllm.compiler.capture.graph_editor import HALF, Editor
from kernelllm.compiler.capture.rewrites.depthwise import (
    all_alone,
    by_planes,
    put_gradients,
    sum_over_channels,
    sum_over_spread,
    sum_over_window,
)
from kernelllm.compiler.options import Options

aten = torch.ops.aten
_FEW = 16
"""Channels of an image up to which a product of patches is faster than cuDNN's convolution."""
_LARGE = 2**28
"""Multiplications from which on a convolution over one dimension takes longer than what two dimensions cost the host."""


def rewrite(graph: GraphModule, options: Options) -> None:
    """Replace such convolutions in the graph, in place."""
    namespace = template_ops.register()
    found = graph.graph.find_nodes(op="call_function", target=aten.convolution.default)
    for node in found:
        _put(node, Editor(graph, node, namespace, options), _turned_round)
    found = graph.graph.find_nodes(op="call_function", target=aten.convolution.default)
    alone = all_alone(graph)
    rules = functools.partial(_window, alone), by_planes, sum_over_spread, sum_over_channels, _groups
    kept = [node for node in found if not any(_put(node, Editor(graph, node, namespace, options), rule) for rule in rules)]
    one_layout = all(not node.args[6] and node.args[8] == 1 for node in kept if node.meta["val"].dim() == 3)
    small = any(node.args[1].meta["val"].dim() == 3 and not _pointwise(node) and not _worth_it(node) for node in kept)
    for node in kept:
        edit = Editor(graph, node, namespace, options)
        if not _put(node, edit, _patches) and one_layout and not (small and _pointwise(node)):
            _put(node, edit, _two_dimensions)
    for node in graph.graph.find_nodes(op="call_function", target=aten.convolution_backward.default):
        with graph.graph.inserting_before(node):
            edit = Editor(graph, node, namespace, options)
            if (alone or node.args[1].meta["val"].dim() == 3) and put_gradients(edit, *node.args):
                graph.graph.erase_node(node)
            else:
                _sum_for_bias(edit, node)


def _sum_for_bias(edit: Editor, node: Node) -> None:
    """Let a kernel that may do more sum up the gradient of the bias: torch takes one of its own, which is slow where channels are last."""
    users = [user for user in node.users if user.target is operator.getitem and user.args[1] == 2]
    wanted = list(node.args[10])
    if not wanted[2] or not users:
        return
    grad = node.args[0]
    total = edit.call(aten.sum.dim_IntList, grad, [0, *range(2, grad.meta["val"].dim())])
    for user in users:
        user.replace_all_uses_with(total)
        edit.graph.graph.erase_node(user)
    node.args = (*node.args[:10], [*wanted[:2], False])


def _put(node: Node, edit: Editor, rule: Callable[..., Node | None]) -> bool:
    """Whether the rule gave an operator for the node, which then stands in its place."""
    with edit.graph.graph.inserting_before(node):
        made = rule(edit, *node.args)
    if made is None:
        return False
    node.replace_all_uses_with(made)
    edit.graph.graph.erase_node(node)
    return True


def _window(alone: bool, edit: Editor, x: Node, weight: Node, bias: Node | None, stride: Any, *rest: Any) -> Node | None:
    """``alone``: no other convolution of the graph asks for channels last."""
    fast = x.meta["val"].dim() > 3 and not alone and set(stride) == {1}
    return None if fast else sum_over_window(edit, x, weight, bias, stride, *rest)


def _groups(edit: Editor, x: Node, weight: Node, bias: Node | None, stride: Any, padding: Any, dilation: Any, transposed: bool,
            _: Any, groups: int) -> Node | None:
    """A kernel of ours, for a large convolution over one dimension in groups of several channels."""
    value, kernel, out = (v.meta["val"] for v in (x, weight, edit.node))
    if transposed or groups == 1 or value.dim() != 3 or kernel.shape[1] < 8 or out.numel() * kernel[0].numel() < _LARGE:
        return None
    if edit.options.backward or not (value.dtype in HALF or (value.dtype == torch.float32 and edit.options.conv_tf32)):
        return None
    return edit.template("conv", x, weight, bias, list(stride), list(padding), list(dilation), groups, allow_tf32=edit.options.conv_tf32)


def _patches(edit: Editor, x: Node, weight: Node, bias: Node | None, stride: Any, padding: Any, dilation: Any, transposed: bool,
             output_padding: Any, groups: int) -> Node | None:
    """The product of patches and weights, where windows do not overlap and channels are few."""
    channels, window = weight.meta["val"].shape[1], list(weight.meta["val"].shape[2:])
    value, out = x.meta["val"], edit.node.meta["val"]
    fits = not transposed and groups == 1 and list(stride) == window and not any(padding) and set(dilation) == {1}
    if not fits or channels > _FEW or math.prod(window) < 4 or value.dim() != out.dim() or value.dtype not in (torch.float32, *HALF):
        return None
    counts, spatial = list(out.shape[2:]), range(len(window))
    for d in spatial:
        if value.shape[2 + d] != counts[d] * window[d]:
            x = edit.call(aten.slice.Tensor, x, 2 + d, 0, counts[d] * window[d])
    x = edit.call(aten.reshape.default, x, [*value.shape[:2], *(n for d in spatial for n in (counts[d], window[d]))])
    x = edit.call(aten.permute.default, x, [0, *(2 + 2 * d for d in spatial), 1, *(3 + 2 * d for d in spatial)])
    length = channels * math.prod(window)
    x = edit.call(aten.reshape.default, x, [value.shape[0] * math.prod(counts), length])
    turned = edit.call(aten.permute.default, edit.call(aten.reshape.default, weight, [out.shape[1], length]), [1, 0])
    if value.dtype == torch.float32:
        made = edit.template("matmul", x, turned, *([bias] if bias else []), allow_tf32=edit.options.conv_tf32)
    else:
        made = edit.call(aten.addmm.default, bias, x, turned) if bias else edit.call(aten.mm.default, x, turned)
    made = edit.call(aten.reshape.default, made, [out.shape[0], *counts, out.shape[1]])
    return edit.call(aten.permute.default, made, [0, len(window) + 1, *(1 + d for d in spatial)])


def _turned_round(edit: Editor, x: Node, weight: Node, bias: Node | None, stride: Any, padding: Any, dilation: Any, transposed: bool,
                  output_padding: Any, groups: int) -> Node | None:
    """The convolution that a transposed one of stride 1 is."""
    if not transposed or set(stride) != {1} or any(output_padding) or groups != 1 or edit.options.backward:
        return None
    window = weight.meta["val"].shape[2:]
    around = [d * (k - 1) - p for d, k, p in zip(dilation, window, padding, strict=True)]
    if any(isinstance(p, torch.SymInt) or p < 0 for p in around):
        return None
    ends = list(range(2, 2 + len(window)))
    turned = edit.call(aten.permute.default, edit.call(torch.ops.prims.rev.default, weight, ends), [1, 0, *ends])
    return edit.call(aten.convolution.default, x, turned, bias, stride, around, dilation, False, output_padding, 1)


def _two_dimensions(
    edit: Editor, x: Node, weight: Node, bias: Node | None, stride: Any, padding: Any, dilation: Any, *_: Any
) -> Node | None:  # fmt: skip
    """The convolution, neither transposed nor grouped, over a height of 1 and the width."""
    if x.meta["val"].dim() != 3 or not _worth_it(edit.node):
        return None
    flat = [edit.call(aten.unsqueeze.default, t, 2) for t in (x, weight)]
    window = [1, *stride], [0, *padding], [1, *dilation]
    return edit.call(aten.squeeze.dim, edit.call(aten.convolution.default, *flat, bias, *window, False, [0, 0], 1), 2)


def _worth_it(node: Node) -> bool:
    """Whether a convolution over one dimension has channels and work enough for two."""
    kernel = node.args[1].meta["val"]
    return bool(min(kernel.shape[:2]) >= _FEW and node.meta["val"].numel() * kernel[0].numel() >= _LARGE)


def _pointwise(node: Node) -> bool:
    """Whether its window is one element: cuDNN does it as fast in either layout, without turning anything."""
    return all(size == 1 for size in node.args[1].meta["val"].shape[2:])


__all__ = ["rewrite"]
