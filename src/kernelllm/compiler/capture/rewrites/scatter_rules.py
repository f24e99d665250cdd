"""Scatters: sums in float32, or without atomics where places differ or come in a row; the largest and smallest have a template."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from kernelllm.compiler.capture.graph_editor import Editor
from kernelllm.compiler.capture.rewrites.distinct_positions import distinct, times_in_a_row

aten = torch.ops.aten


def _scatter_add(w: Editor, x: Node, dim: int, index: Node, src: Node) -> Node | None:
    """In float32, as :func:`_index_put`; what comes to places that differ is added to what lies there."""
    if x.meta["val"].dim() and _alike(index, src) and distinct(index, dim):
        return w.call(aten.scatter.src, x, dim, index, w.call(aten.add.Tensor, w.call(aten.gather.default, x, dim, index), src))
    if _alike(index, src) and (made := _sum_of_runs(w, x, dim, index, src)):
        return made
    return _in_float32(w, x, src, lambda whole, added: w.call(aten.scatter_add.default, whole, dim, index, added))


def _index_add(w: Editor, x: Node, dim: int, index: Node, src: Node, *, alpha: float = 1) -> Node | None:
    """Rows that come a number of times in a row; torch's own form is another scatter, which has its rule."""
    return _sum_of_runs(w, x, dim, index, src) if alpha == 1 and index.meta["val"].dim() == 1 else None


def _sum_of_runs(w: Editor, x: Node, dim: int, index: Node, src: Node) -> Node | None:
    """What comes to one place lies together: ``x`` plus sums of neighbours, without atomics."""
    whole, given = x.meta["val"], src.meta["val"]
    if not whole.dim() or whole.dim() != given.dim() or not whole.dtype.is_floating_point or whole.dtype != given.dtype:
        return None
    dim = dim % whole.dim()
    times = times_in_a_row(index, dim if index.meta["val"].dim() > 1 else 0, whole.shape[dim])
    others = [pair for d, pair in enumerate(zip(whole.shape, given.shape, strict=True)) if d != dim]
    if times is None or not all(statically_known_true(a == b) for a, b in others):
        return None
    sizes: list[Any] = [w.size(src, d) for d in range(given.dim())]
    sizes[dim : dim + 1] = [w.size(x, dim), times]

    def summed(lying: Node, added: Node) -> Node:
        return w.call(aten.add.Tensor, lying, w.call(aten.sum.dim_IntList, w.call(aten.reshape.default, added, sizes), [dim + 1]))

    return _in_float32(w, x, src, summed) or summed(x, src)


def _scatter_reduce(w: Editor, x: Node, dim: int, index: Node, src: Node, reduce: str, *, include_self: bool = True) -> Node | None:
    if reduce in ("sum", "mean"):
        target = aten.scatter_reduce.two
        return _in_float32(w, x, src, lambda *wide: w.call(target, wide[0], dim, index, wide[1], reduce, include_self=include_self))
    whole, given = x.meta["val"], src.meta["val"]
    known = whole.dim() and whole.dtype in (torch.float32, torch.float16, torch.bfloat16)
    if reduce not in ("amax", "amin") or not known or not _alike(index, src):
        return None
    if any(_hint(a) != _hint(b) for d, (a, b) in enumerate(zip(whole.shape, given.shape, strict=True)) if d != dim % whole.dim()):
        return None
    return w.template("scatter_extreme", _filled_there(w, x), dim, index, src, reduce == "amax", include_self)


def _filled_there(w: Editor, x: Node) -> Node:
    """A constant is one element until the template copies it: a kernel would fill what is read once."""
    if x.target is not aten.full.default or len(x.users) > 1 or not isinstance(x.args[1], bool | int | float):
        return x
    one = w.call(aten.full.default, [1] * x.meta["val"].dim(), x.args[1], dtype=x.meta["val"].dtype, device=x.meta["val"].device)
    return w.call(aten.expand.default, one, x.args[0])


def _index_reduce(w: Editor, x: Node, dim: int, index: Node, src: Node, reduce: str, *, include_self: bool = True) -> Node | None:
    """A scatter of which all columns go to the same places."""
    given = src.meta["val"]
    if reduce not in ("amax", "amin") or not given.dim() or index.meta["val"].dim() != 1:
        return None
    at = dim % given.dim()
    placed = w.call(aten.view.default, index, [w.size(src, d) if d == at else 1 for d in range(given.dim())])
    placed = w.call(aten.expand.default, placed, [w.size(src, d) for d in range(given.dim())])
    return _scatter_reduce(w, x, dim, placed, src, reduce, include_self=include_self)


def _alike(first: Node, second: Node) -> bool:
    """Whether both have the same sizes at the problem's own."""
    return [_hint(n) for n in first.meta["val"].shape] == [_hint(n) for n in second.meta["val"].shape]


def _hint(size: Any) -> Any:
    return size if isinstance(size, int) else size.node.hint


def _index_put(w: Editor, x: Node, indices: Any, added: Node, accumulate: bool = False) -> Node | None:
    """Sums in half precision take place in float32: Triton has no atomic addition for every type."""
    at = indices[-1]
    alone = isinstance(at, Node) and at.meta["val"].dtype == torch.int64 and at.meta["val"].dim() == 1 and not any(indices[:-1])
    if accumulate and alone and distinct(at, 0):
        lying = w.call(aten.index.Tensor, x, indices)
        return w.call(aten.index_put.default, x, indices, w.call(aten.add.Tensor, lying, added)) if _alike(lying, added) else None
    if accumulate and alone and (made := _sum_of_runs(w, x, len(indices) - 1, at, added)):
        return made
    return _in_float32(w, x, added, lambda *wide: w.call(aten.index_put.default, wide[0], indices, wide[1], True)) if accumulate else None


def _in_float32(w: Editor, x: Node, added: Node, summed: Callable[..., Node]) -> Node | None:
    """What ``summed`` makes of both in float32, rounded. None for other types than half precision."""
    dtype = x.meta["val"].dtype
    if not dtype.is_floating_point or dtype.itemsize > 2:
        return None
    cast = torch.ops.prims.convert_element_type.default
    return w.call(cast, summed(*(w.call(cast, t, torch.float32) for t in (x, added))), dtype)


Rule = Callable[..., Node | None]
SUMS: dict[Any, Rule] = {aten.index_add: _index_add, aten.index_put: _index_put, aten.scatter_add: _scatter_add}
EXTREMES: dict[Any, Rule] = {aten.scatter_reduce: _scatter_reduce, aten.index_reduce: _index_reduce}
__all__ = ["EXTREMES", "SUMS"]
