"""Long reductions in two stages, along dimensions that the module already has.

A loss is the sum of its rows' sums, and a batch norm's mean that of its images' means: two plain kernels. Inductor would cut the elements
into parts of its own, with an index and a mask for each, up to three times.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Container
from functools import partial, reduce
from typing import Any

import torch
from torch.fx import Node

from kernelllm.compiler.capture.graph_editor import Editor

aten = torch.ops.aten

ANY = range(1, 64)
"""Every dimension but the first."""
LONG = 32768
"""Elements that one program reduces."""
_ENOUGH, _ROW = 264, 64
"""Rows that keep a GPU of 132 cores busy; the shortest row that is worth a program."""
_FAR = 200
"""Operators that are looked at before a sum."""


def reduced(
    w: Editor, x: Node, dims: Any = None, keepdim: bool = False, *, dtype: Any = None, cuts: Container[int] = ANY
) -> Node | None:
    """A sum, largest or smallest value in two stages; None where one stage is better."""
    target = _BY_DIMENSIONS[w.node.target._overloadpacket]
    inner, outer = _stages(x, dims, cuts)
    if not inner:
        return None
    value, made = x.meta["val"].dtype, w.node.meta["val"].dtype
    wide = {"dtype": torch.float32 if value in (torch.float16, torch.bfloat16) else made} if target is aten.sum.dim_IntList else {}
    whole = w.call(target, w.call(target, x, inner, keepdim, **wide), outer, keepdim)
    return w.call(torch.ops.prims.convert_element_type.default, whole, made) if whole.meta["val"].dtype != made else whole


def mean(
    w: Editor, x: Node, dims: Any = None, keepdim: bool = False, *, dtype: Any = None, cuts: Container[int] = ANY
) -> Node | None:
    """A sum in two stages, divided once."""
    inner, outer = _stages(x, dims, cuts)
    if not inner or dtype is not None or not x.meta["val"].dtype.is_floating_point:
        return None
    made = x.meta["val"].dtype
    wide = torch.float32 if made in (torch.float16, torch.bfloat16) else None
    total = w.call(aten.sum.dim_IntList, w.call(aten.sum.dim_IntList, x, inner, keepdim, dtype=wide), outer, keepdim)
    count = reduce(lambda a, b: w.integer(operator.mul, a, b), (w.size(x, d) for d in sorted(inner + outer)))
    total = w.call(aten.div.Tensor, total, count)
    return w.call(torch.ops.prims.convert_element_type.default, total, made) if wide else total


def variance(w: Editor, x: Node, dims: Any = None, *, correction: Any = None, keepdim: bool = False) -> Node | None:
    """Variance and mean: of each row, then of the rows' means."""
    inner, outer = _stages(x, dims)
    if not inner or correction != 0 or x.meta["val"].dtype not in (torch.float32, torch.float64):
        return None
    rows = w.call(aten.var_mean.correction, x, inner, correction=0, keepdim=keepdim)
    row_variance, row_mean = (w.call(operator.getitem, rows, i) for i in range(2))
    among = w.call(aten.var_mean.correction, row_mean, outer, correction=0, keepdim=keepdim)
    within = w.call(aten.mean.dim, row_variance, outer, keepdim)
    results = [w.call(aten.add.Tensor, within, w.call(operator.getitem, among, 0)), w.call(operator.getitem, among, 1)]
    for user in list(w.node.users):
        user.replace_all_uses_with(results[user.args[1]])
        w.graph.graph.erase_node(user)
    return results[0]


def _stages(x: Node, dims: Any, cuts: Container[int] = ANY) -> tuple[list[int], list[int]]:
    """Dimensions to reduce first and then; none where the reduction is not cut. The first ones begin at one of ``cuts``."""
    value = x.meta["val"]
    rank = value.dim()
    shape, stride = ([_hint(n) for n in sizes] for sizes in (value.shape, value.stride()))
    reduced = {d % rank for d in dims} if dims else set(range(rank))
    if rank < 2 or None in (*shape, *stride) or [s for s in stride if s] != sorted((s for s in stride if s), reverse=True):
        return [], []
    kept = math.prod(shape[d] for d in range(rank) if d not in reduced)
    first = next((d + 1 for d in range(rank - 1, -1, -1) if d not in reduced), 0)
    if kept >= _ENOUGH or math.prod(shape) // max(kept, 1) <= LONG:
        return [], []
    for cut in range(max(first, 1), rank):
        outer = sorted(reduced & set(range(cut)))
        rows = math.prod(shape[:cut])
        if cut in cuts and outer and rows >= _ENOUGH and rows // kept <= LONG and math.prod(shape[cut:]) >= _ROW:
            return list(range(cut, rank)), outer
    return [], []


def _hint(size: Any) -> Any:
    return size if isinstance(size, int) else size.node.hint


_BY_DIMENSIONS = {
    aten.sum: aten.sum.dim_IntList, aten.amax: aten.amax.default, aten.amin: aten.amin.default,
    aten.max: aten.amax.default, aten.min: aten.amin.default,
}  # fmt: skip


def largest(w: Editor, x: Node, *others: Any, **_: Any) -> Node | None:
    """``x.max()`` and ``x.min()``, which look at all elements; with a dimension they have indices too."""
    return None if others else reduced(w, x)


def behind_rows() -> dict[Any, Callable[..., Node | None]]:
    """The rules for sums and means of what follows from reductions of the same rows: one kernel does both, row by row. Inductor of torch
    2.11 cuts such a sum otherwise, so that all elements are stored and read once more: for a divergence of 2,048 x 32,000 words 262 MB."""
    return {aten.sum: partial(_behind_rows, reduced), aten.mean: partial(_behind_rows, mean)}


def _behind_rows(rule: Callable[..., Node | None], w: Editor, x: Node, *args: Any, **kwargs: Any) -> Node | None:
    cuts = _rows_before(x)
    return rule(w, x, *args, cuts=cuts, **kwargs) if cuts else None


def _rows_before(x: Node) -> set[int]:
    """Where the reduced dimensions begin in reductions of whole rows that ``x`` follows from, element by element."""
    shape, found = list(x.meta["val"].shape), set[int]()
    waiting, seen = [x], {x}
    while waiting and len(seen) < _FAR:
        node = waiting.pop()
        packet = getattr(node.target, "_overloadpacket", None)
        if packet in _ROW_REDUCTIONS and len(node.args) > 1:
            value, dims = node.args[0].meta["val"], node.args[1]
            places = sorted(d % value.dim() for d in ([dims] if isinstance(dims, int) else dims))
            if list(value.shape) == shape and places and places == list(range(places[0], len(shape))):
                found.add(places[0])
        elif torch.Tag.pointwise not in getattr(node.target, "tags", ()) and packet not in _WITHOUT_EFFECT:
            continue
        new = [n for n in node.all_input_nodes if n not in seen and n.op == "call_function"]
        seen.update(new)
        waiting += new
    return found


_ROW_REDUCTIONS = {
    aten.sum, aten.amax, aten.amin, aten.mean, aten.var_mean, aten.var, aten.logsumexp, aten._softmax, aten._log_softmax, aten.max,
}  # fmt: skip
_WITHOUT_EFFECT = {
    aten.expand, aten.unsqueeze, aten.squeeze, aten.alias, aten.detach, torch.ops.prims.convert_element_type, operator.getitem,
}  # fmt: skip

RULES: dict[Any, Any] = {
    aten.sum: reduced, aten.mean: mean, aten.amax: reduced, aten.amin: reduced, aten.max: largest, aten.min: largest,
    aten.var_mean: variance,
}  # fmt: skip
