"""Sorts of short rows by the template in place of torch's radix sort; integer keys too, where they are positions.

Chosen experts and tokens are sorted again to put them in order. Their numbers are below the length of what they were chosen from.
A few numbers of which some are picked, as the median of a window, are compared with each other: nothing is stored.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Node

from kernelllm.compiler.capture.graph_editor import CONVERT, VIEWS, Editor

aten = torch.ops.aten
_LONGEST, _FEW = 1024, 16
_CHOICES = (aten.topk.default, aten.sort.default, aten.sort.stable, aten.min.dim, aten.max.dim)
_MOVES = (*VIEWS, aten.permute.default, aten.transpose.int, aten.slice.Tensor, aten.select.int, aten.squeeze.dim, aten.unsqueeze.default,
          aten.clone.default, aten.expand.default, aten.alias.default)  # fmt: skip


def sort(w: Editor, x: Node, dim: int = -1, descending: bool = False, *, stable: bool | None = None) -> Node | None:
    """The sort by the template; None where torch's is as fast, or numbers need 64 bits."""
    value = x.meta["val"]
    length = value.shape[dim] if value.dim() else 0
    if not isinstance(length, int) or not 1 < length <= _LONGEST or value.dtype == torch.float64:
        return None
    if length <= _FEW and _picked(w, x, dim % value.dim(), descending):
        return x  # nothing reads the sort any more
    return of_positions(w, x, dim, descending) if value.dtype == torch.int64 else w.template("sort", x, dim, descending)


def _picked(w: Editor, x: Node, dim: int, descending: bool) -> bool:
    """Put comparisons in the place of places that are picked from the sorted row; whether that was all that anybody reads."""
    length = x.meta["val"].shape[dim]
    parts = [*w.node.users]
    picks = [pick for part in parts for pick in part.users]
    whole = all(part.target is operator.getitem and (part.args[1] == 0 or not part.users) for part in parts)
    if not whole or not picks or not all(p.target is aten.select.int and p.args[1] % x.meta["val"].dim() == dim for p in picks):
        return False
    at = {p: (length - 1 - p.args[2] % length) if descending else p.args[2] % length for p in picks}
    steps, needed = [], set(at.values())
    for low, high in reversed([*_comparators(length)]):  # only what leads to a place that is picked
        if {low, high} & needed:
            steps.append((low, high, low in needed, high in needed))
            needed |= {low, high}
    row: list[Any] = [w.call(aten.select.int, x, dim, i) for i in range(length)]
    for low, high, lower, higher in reversed(steps):
        a, b = row[low], row[high]
        swapped = w.call(aten.gt.Tensor, a, b)
        if x.meta["val"].is_floating_point():  # NaN is the largest
            swapped = w.call(aten.logical_or.default, swapped, w.call(aten.ne.Tensor, a, a))
        row[low] = w.call(aten.where.self, swapped, b, a) if lower else None
        row[high] = w.call(aten.where.self, swapped, a, b) if higher else None
    for pick, place in at.items():
        pick.replace_all_uses_with(row[place])
    for node in (*picks, *parts):
        w.graph.graph.erase_node(node)
    return True


def _comparators(length: int) -> Iterator[tuple[int, int]]:
    """Pairs of places that are compared one after the other (Batcher's odd-even merge sort, 1968)."""
    p = 1
    while p < length:
        k = p
        while k >= 1:
            for j in range(k % p, length - k, 2 * k):
                for i in range(min(k, length - j - k)):
                    if (i + j) // (2 * p) == (i + j + k) // (2 * p):
                        yield i + j, i + j + k
            k //= 2
        p *= 2


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
