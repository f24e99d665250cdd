"""Positions that are known to differ, as topk, sort and randperm choose them: nothing comes to a place twice."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Node

from kernelllm.compiler.capture.graph_editor import CONVERT

aten = torch.ops.aten
_PLACES = {"topk": 2, "topk_long": 2, "sort": 1}
"""Operators of torch and templates that choose, and where their dimension stands."""
_SAME = (aten.alias.default, aten.clone.default, aten.detach.default)


def distinct(index: Node, dim: int) -> bool:
    """Whether numbers of an index differ from each other along ``dim``, whatever the values are."""
    node: Any = index
    axis = dim % index.meta["val"].dim() if index.meta["val"].dim() else 0
    while isinstance(node, Node) and node.op == "call_function":
        target, args = node.target, node.args
        if target is operator.getitem:
            return _chosen(args[0], args[1], axis)
        if target in (aten.randperm.default, aten.arange.default, aten.arange.start, torch.ops.prims.iota.default):
            return True
        if target is aten.expand.default:
            shape, given = node.meta["val"].shape, args[0].meta["val"].shape
            axis -= len(shape) - len(given)
            if axis < 0 or given[axis] != shape[axis + len(shape) - len(given)]:
                return False
        elif target is aten.unsqueeze.default:
            new = args[1] % node.meta["val"].dim()
            if axis == new:
                return False
            axis -= axis > new
        elif target is aten.permute.default:
            axis = args[1][axis] % len(args[1])
        elif target is aten.slice.Tensor or target in _SAME or (target is CONVERT and args[1] in (torch.int64, torch.int32)):
            pass
        else:
            return False
        node = args[0]
    return False


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


__all__ = ["distinct"]
