"""The order of memory in which torch's attention is given its query: its result comes in the same one."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

_HEADS_INSIDE = [3, 1, 2, 0]
"""Ranks of the strides of ``[batch, heads, length, width]`` in memory that is ``[batch, length, heads, width]``."""
_MOVED = (0, 2, 1, 3)


def query_in_order(node: Node, env: dict[Node, Any]) -> None:
    """Have a query that is computed right before it in the order in which the result is read, heads behind the length, so that no copy
    is between attention and the product behind it. ``env``: what the nodes so far have become."""
    if str(node.target) != "kernelllm.torch_scaled_dot_product_attention.default" or not any(map(_moves_heads, node.users)):
        return
    from torch._inductor import ir

    query: Any = env.get(node.args[0])
    if not isinstance(query, ir.TensorBox) or not isinstance(query.data, ir.StorageBox) or len(query.get_size()) != 4:
        return
    if not all(size.is_number for size in query.get_size()):
        return
    query.realize()
    buffer = query.data.data
    if isinstance(buffer, ir.ComputedBuffer) and isinstance(buffer.layout, ir.FlexibleLayout):
        ir.ExternKernel.require_stride_order(query, _HEADS_INSIDE)


def _moves_heads(user: Node) -> bool:
    if user.target is torch.ops.aten.permute.default:
        return tuple(user.args[1]) == _MOVED
    return user.target is torch.ops.aten.transpose.int and {user.args[1], user.args[2]} == {1, 2}
