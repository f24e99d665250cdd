"""Attention masks that hide nothing are dropped from a graph of Dynamo's: libraries make such masks of positions in every forward.

torch takes attention under a mask apart where its fast kernels do not take the mask, and computes all of its scores in float32.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

_MOST = 2**24
"""Elements of a mask that is computed."""
_FUNCTIONS = {
    torch.arange, torch.full, torch.ones, torch.zeros, torch.tensor, torch.where, torch.tril, torch.triu, torch.logical_and,
    torch.logical_or, torch.logical_not, torch.unsqueeze,
    operator.getitem, operator.and_, operator.or_, operator.invert, operator.ge, operator.gt, operator.le, operator.lt, operator.eq,
    operator.ne, operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod,
}  # fmt: skip
_METHODS = {
    "expand", "view", "reshape", "unsqueeze", "squeeze", "transpose", "permute", "new_ones", "new_zeros", "new_full", "to", "bool", "ge",
    "gt", "le", "lt", "eq", "ne", "logical_and", "logical_or", "logical_not", "tril", "triu", "masked_fill", "contiguous", "repeat", "type",
    "float", "half", "bfloat16", "long", "int", "__and__", "__or__", "__invert__",
}  # fmt: skip
"""What masks are made with; none of it changes a tensor."""


def drop(graph: fx.GraphModule) -> None:
    """Leave out, in place, each mask that keeps or adds zero to all scores and follows from numbers alone."""
    for node in graph.graph.nodes:
        if node.op != "call_function" or node.target is not torch.nn.functional.scaled_dot_product_attention:
            continue
        mask = node.args[3] if len(node.args) > 3 else node.kwargs.get("attn_mask")
        if isinstance(mask, fx.Node) and _widens_nothing(node, mask) and _hides_nothing(mask):
            if len(node.args) > 3:
                node.args = (*node.args[:3], None, *node.args[4:])
            else:
                node.kwargs = {name: value for name, value in node.kwargs.items() if name != "attn_mask"}
    graph.recompile()


def _widens_nothing(node: fx.Node, mask: fx.Node) -> bool:
    """Whether the result has the same shape without the mask."""
    query, key, value = ((n.meta.get("example_value") if isinstance(n, fx.Node) else None) for n in (*node.args[:2], mask))
    if not all(isinstance(t, torch.Tensor) for t in (query, key, value)):
        return False
    scores = (*query.shape[:-1], key.shape[-2])  # type: ignore[union-attr]
    sizes = tuple(value.shape)  # type: ignore[union-attr]
    known = all(isinstance(n, int) for n in (*scores, *sizes)) and math.prod(sizes) <= _MOST
    return known and len(sizes) <= len(scores) and all(n in (1, m) for n, m in zip(sizes[::-1], scores[::-1], strict=False))


def _hides_nothing(mask: fx.Node) -> bool:
    order: dict[fx.Node, None] = {}
    if not _made_of_numbers(mask, order) or not all(_reads(user) for user in _below(order)):
        return False
    values: dict[fx.Node, Any] = {}
    with torch.no_grad(), _disable_current_modes():
        for node in order:
            args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
            args, kwargs = torch.utils._pytree.tree_map_only(torch.device, lambda _: torch.device("cpu"), (args, kwargs))
            if "device" in kwargs:
                kwargs = {**kwargs, "device": "cpu"}
            called: Any = node.target if node.op == "call_function" else getattr(torch.Tensor, str(node.target))
            values[node] = called(*args, **kwargs)
        made = values[mask]
        return bool(made.all() if made.dtype == torch.bool else (made == 0).all())


def _made_of_numbers(node: fx.Node, order: dict[fx.Node, None]) -> bool:
    """``order``: what is to be computed for it, each after what it needs."""
    if node in order:
        return True
    value = node.meta.get("example_value")
    small = not isinstance(value, torch.Tensor) or (all(isinstance(n, int) for n in value.shape) and value.numel() <= _MOST)
    if not small or not _is_pure(node) or not all(_made_of_numbers(n, order) for n in node.all_input_nodes):
        return False
    order[node] = None
    return True


def _is_pure(node: fx.Node) -> bool:
    known = node.op == "call_function" and node.target in _FUNCTIONS
    return (known or (node.op == "call_method" and node.target in _METHODS)) and "out" not in node.kwargs


def _below(nodes: dict[fx.Node, None]) -> Iterator[fx.Node]:
    """All that is made of nodes, up to what may write."""
    todo, seen = [*nodes], set(nodes)
    while todo:
        for user in todo.pop().users:
            if user not in seen:
                seen.add(user)
                yield user
                if _is_pure(user):
                    todo.append(user)


def _reads(node: fx.Node) -> bool:
    return _is_pure(node) or node.target is torch.nn.functional.scaled_dot_product_attention


__all__ = ["drop"]
