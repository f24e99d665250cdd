"""Sorts of short rows by the template in place of torch's radix sort; integer keys too, where they are positions.

Chosen experts and tokens are sorted again to put them in order. Their numbers are below the length of what they were chosen from.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Node

from kernelllm.compiler.capture.graph_editor import CONVERT, VIEWS, Editor

aten = torch.ops.aten
_LONGEST = 1024
_CHOICES = (aten.topk.default, aten.sort.default, aten.sort.stable, aten.min.dim, aten.max.dim)
_MOVES = (*VIEWS, aten.permute.default, aten.transpose.int, aten.slice.Tensor, aten.select.int, aten.squeeze.dim, aten.unsqueeze.default,
          aten.clone.default, aten.expand.default, aten.alias.default)  # fmt: skip


def sort(w: Editor, x: Node, dim: int = -1, descending: bool = False, *, stable: bool | None = None) -> Node | None:
    """The sort by the template; None where torch's is as fast, or numbers need 64 bits."""
    value = x.meta["val"]
    length = value.shape[dim] if value.dim() else 0
    if not isinstance(length, int) or not 1 < length <= _LONGEST or value.dtype == torch.float64:
        return None
    return of_positions(w, x, dim, descending) if value.dtype == torch.int64 else w.template("sort", x, dim, descending)


def of_positions(w: Editor, x: Node, dim: int, descending: bool) -> Node | None:
    """The sort of positions by the template, which takes up to 32 bits; None where the numbers are something else."""
    if x.meta["val"].dtype != torch.int64 or not _positions(x):
        return None
    made = w.template("sort", w.call(CONVERT, x, torch.int32), dim, descending)
    for user in [u for u in w.node.users if u.target is operator.getitem and u.args[1] == 0]:
        user.replace_all_uses_with(w.call(CONVERT, w.call(operator.getitem, made, 0), torch.int64))
        w.graph.graph.erase_node(user)
    return made


def _positions(node: Any) -> bool:
    """Whether numbers are positions in a row, which are fewer than 2**31."""
    while isinstance(node, Node) and node.target in _MOVES:
        node = node.args[0]
    if not isinstance(node, Node):
        return False
    if node.target is not operator.getitem:
        return node.target in (aten.argmax.default, aten.argmin.default)
    chooser, number = node.args
    return number == 1 and (chooser.target in _CHOICES or str(chooser.target).startswith(("kernelllm.topk", "kernelllm.sort")))


__all__ = ["of_positions", "sort"]
