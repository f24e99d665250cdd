"""The memory order of query, key and result of torch's attention."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

_HEADS_INSIDE = [3, 1, 2, 0]
"""Ranks of the strides of ``[batch, heads, length, width]`` in memory that is ``[batch, length, heads, width]``."""
_MOVED = (0, 2, 1, 3)


def in_order(node: Node, env: dict[Node, Any]) -> None:
    """Have what is computed right before attention with its heads behind the length: the query where its result is read so, then no copy
    is between attention and the product behind it; the key where it comes out of such memory, then it is computed by the kernel that
    takes its norm. ``env``: what the nodes so far have become."""
    if str(node.target) != "kernelllm.torch_scaled_dot_product_attention.default":
        return
    query, key = node.args[:2]
    if any(map(_moves_heads, node.users)):
        _lay_out(env.get(query))
    if isinstance(key, Node) and _out_of_moved(key):
        _lay_out(env.get(key))


def _lay_out(tensor: Any) -> None:
    from torch._inductor import ir

    if not isinstance(tensor, ir.TensorBox) or not isinstance(tensor.data, ir.StorageBox) or len(tensor.get_size()) != 4:
        return
    if not all(size.is_number for size in tensor.get_size()):
        return
    tensor.realize()
    buffer = tensor.data.data
    if isinstance(buffer, ir.ComputedBuffer) and isinstance(buffer.layout, ir.FlexibleLayout):
        ir.ExternKernel.require_stride_order(tensor, _HEADS_INSIDE)


def _out_of_moved(node: Node) -> bool:
    """Whether it is computed, an element for an element, out of a tensor whose heads lie behind the length."""
    shape, seen = node.meta["val"].shape, {node}
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if node.meta["val"].stride(1) < node.meta["val"].stride(2):
            return True
        same = {source for source in node.all_input_nodes if getattr(source.meta.get("val"), "shape", None) == shape}
        waiting += same - seen
        seen |= same
    return False


def _moves_heads(node: Node) -> bool:
    """Whether it exchanges heads and length."""
    if node.target is torch.ops.aten.permute.default:
        return tuple(node.args[1]) == _MOVED
    return node.target is torch.ops.aten.transpose.int and {node.args[1], node.args[2]} == {1, 2}
