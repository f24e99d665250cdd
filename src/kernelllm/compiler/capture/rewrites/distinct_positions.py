"""Positions that are known to differ, as topk, sort and randperm choose them: nothing comes to a place twice.

And those of which each comes a number of times in a row, as in ``torch.arange(rows).repeat_interleave(times)``.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from kernelllm.compiler.capture.graph_editor import CONVERT, VIEWS

aten = torch.ops.aten
_PLACES = {"topk": 2, "topk_long": 2, "sort": 1}
"""Operators of torch and templates that choose, and where their dimension stands."""
_FROM_ZERO = (aten.arange.default, torch.ops.prims.iota.default)
_COUNTS = (*_FROM_ZERO, aten.arange.start)
_SAME = (aten.alias.default, aten.clone.default, aten.detach.default)


def distinct(index: Node, dim: int) -> bool:
    """Whether numbers of an index differ from each other along ``dim``, whatever the values are."""
    node, axis = _origin(index, dim)
    if node is not None and node.target is operator.getitem:
        return _chosen(node.args[0], node.args[1], axis)
    return node is not None and node.target in (aten.randperm.default, *_COUNTS)


def times_in_a_row(index: Node, dim: int, rows: Any) -> Node | int | None:
    """How often each of the numbers below ``rows`` comes, one after the other, if they stand so along ``dim``."""
    node, axis = _origin(index, dim)
    if node is None or axis or node.meta["val"].dim() != 1:
        return None
    times: Any = None
    if node.target in VIEWS:
        table = node.args[0]
        while table.target in _SAME:
            table = table.args[0]
        if table.target is aten.expand.default and table.meta["val"].dim() == 2 and table.args[0].meta["val"].dim() == 2:
            count, shape = _counted(table.args[0]), table.meta["val"].shape
            times = shape[1] if count is not None and statically_known_true(count == shape[0]) else None
    elif node.target is aten.div.Tensor_mode and node.kwargs.get("rounding_mode") == "floor" and _counted(node.args[0]) is not None:
        times = node.args[1].meta["val"] if isinstance(node.args[1], Node) else node.args[1]
    if not isinstance(times, int | torch.SymInt) or not statically_known_true(index.meta["val"].shape[dim] == rows * times):
        return None
    return times if isinstance(times, int) else next(
        (n for n in index.graph.nodes if isinstance(n.meta.get("val"), torch.SymInt) and n.meta["val"].node.expr == times.node.expr), None
    )


def _counted(node: Any) -> Any:
    """How far a column or row counts from zero on; None for another."""
    while node.target in (*VIEWS, *_SAME, aten.unsqueeze.default):
        node = node.args[0]
    first = node.kwargs.get("start", 0) == 0 and node.kwargs.get("step", 1) == 1
    value = node.meta.get("val")
    return value.shape[0] if node.target in _FROM_ZERO and first and isinstance(value, torch.Tensor) else None


def _origin(index: Node, dim: int) -> tuple[Node | None, int]:
    """Behind operators that only move whole numbers: the node that makes them, and where ``dim`` is there. None for numbers that are
    the same along it."""
    node: Any = index
    axis = dim % index.meta["val"].dim() if index.meta["val"].dim() else 0
    while isinstance(node, Node) and node.op == "call_function":
        target, args = node.target, node.args
        if target is aten.expand.default:
            shape, given = node.meta["val"].shape, args[0].meta["val"].shape
            axis -= len(shape) - len(given)
            if axis < 0 or given[axis] != shape[axis + len(shape) - len(given)]:
                return None, 0
        elif target is aten.unsqueeze.default:
            new = args[1] % node.meta["val"].dim()
            if axis == new:
                return None, 0
            axis -= axis > new
        elif target is aten.permute.default:
            axis = args[1][axis] % len(args[1])
        elif not (target is aten.slice.Tensor or target in _SAME or (target is CONVERT and args[1] in (torch.int64, torch.int32))):
            return node, axis
        node = args[0]
    return None, 0


def _chosen(chooser: Any, number: int, axis: int) -> bool:
    """Whether a result of an operator with several has numbers that differ: what it chose, or distinct numbers in order."""
    name = str(chooser.target).removeprefix("kernelllm.").removeprefix("aten.").partition(".")[0]
    if name not in _PLACES:
        return False
    place = None if chooser.target is aten.sort.stable else _PLACES[name]
    dim = chooser.kwargs.get("dim", chooser.args[place] if place is not None and len(chooser.args) > place else -1)
    if dim % max(chooser.args[0].meta["val"].dim(), 1) != axis:
        return False
    return number == 1 or (name == "sort" and distinct(chooser.args[0], axis))


__all__ = ["distinct", "times_in_a_row"]
