"""Scatters: sums in half precision take place in float32, the largest and smallest of what comes to a place have a template."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from kernelllm.compiler.capture.graph_editor import Editor

aten = torch.ops.aten


def _scatter_add(w: Editor, x: Node, dim: int, index: Node, src: Node) -> Node | None:
    """In float32, as :func:`_index_put`."""
    return _in_float32(w, x, src, lambda whole, added: w.call(aten.scatter_add.default, whole, dim, index, added))


def _scatter_reduce(w: Editor, x: Node, dim: int, index: Node, src: Node, reduce: str, *, include_self: bool = True) -> Node | None:
    if reduce in ("sum", "mean"):
        target = aten.scatter_reduce.two
        return _in_float32(w, x, src, lambda *wide: w.call(target, wide[0], dim, index, wide[1], reduce, include_self=include_self))
    whole, placed, given = (n.meta["val"] for n in (x, index, src))
    alike = whole.dim() and whole.dtype in (torch.float32, torch.float16, torch.bfloat16)
    if reduce not in ("amax", "amin") or not alike or [_hint(n) for n in placed.shape] != [_hint(n) for n in given.shape]:
        return None
    if any(_hint(a) != _hint(b) for d, (a, b) in enumerate(zip(whole.shape, given.shape, strict=True)) if d != dim % whole.dim()):
        return None
    return w.template("scatter_extreme", x, dim, index, src, reduce == "amax", include_self)


def _index_reduce(w: Editor, x: Node, dim: int, index: Node, src: Node, reduce: str, *, include_self: bool = True) -> Node | None:
    """A scatter of which all columns go to the same places."""
    given = src.meta["val"]
    if reduce not in ("amax", "amin") or not given.dim() or index.meta["val"].dim() != 1:
        return None
    at = dim % given.dim()
    placed = w.call(aten.view.default, index, [w.size(src, d) if d == at else 1 for d in range(given.dim())])
    placed = w.call(aten.expand.default, placed, [w.size(src, d) for d in range(given.dim())])
    return _scatter_reduce(w, x, dim, placed, src, reduce, include_self=include_self)


def _hint(size: Any) -> Any:
    return size if isinstance(size, int) else size.node.hint


def _index_put(w: Editor, x: Node, indices: Any, added: Node, accumulate: bool = False) -> Node | None:
    """Sums in half precision take place in float32: Triton has no atomic addition for every type."""
    return _in_float32(w, x, added, lambda *wide: w.call(aten.index_put.default, wide[0], indices, wide[1], True)) if accumulate else None


def _in_float32(w: Editor, x: Node, added: Node, summed: Callable[..., Node]) -> Node | None:
    """What ``summed`` makes of both in float32, rounded. None for other types than half precision."""
    dtype = x.meta["val"].dtype
    if not dtype.is_floating_point or dtype.itemsize > 2:
        return None
    cast = torch.ops.prims.convert_element_type.default
    return w.call(cast, summed(*(w.call(cast, t, torch.float32) for t in (x, added))), dtype)


Rule = Callable[..., Node | None]
SUMS: dict[Any, Rule] = {aten.index_put: _index_put, aten.scatter_add: _scatter_add}
EXTREMES: dict[Any, Rule] = {aten.scatter_reduce: _scatter_reduce, aten.index_reduce: _index_reduce}
__all__ = ["EXTREMES", "SUMS"]
