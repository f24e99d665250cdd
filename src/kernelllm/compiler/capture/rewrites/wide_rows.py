"""Softmax, log-softmax and logsumexp of wide rows become templates that read each row once or twice."""

from __future__ import annotations

import torch
from torch.fx import Node

from kernelllm.compiler.capture.graph_editor import CONVERT, HALF, HEAVY, VIEWS, Editor, called, closed, group_of, reads_memory

aten = torch.ops.aten
OPERATORS = ("aten._softmax.default", "aten._log_softmax.default", "aten.logsumexp.default")
"""The operators of which a module called one."""


def join(edit: Editor, wide: int) -> None:
    """Softmax over wide rows that lie in memory as one operator; log-softmax and logsumexp by one that reads the rows once."""
    node = edit.node
    kind = called(node)
    group, outside = group_of(node)
    tops = [n for n in group if n.target is aten.amax.default]
    if len(tops) != 1 or len(outside) != 1 or not closed(node, group) or any(called(u) == kind for u in node.users):
        return
    (source,) = outside
    x, scale = _scaled_rows(source)
    value = x.meta["val"]
    dims = tops[0].args[1]
    length = value.shape[-1] if value.dim() else 0
    known = length if isinstance(length, int) else length.node.hint
    if list(dims) not in ([-1], [value.dim() - 1]) or known is None or known < wide or not _stored(x) or value.dtype == torch.float64:
        return
    with edit.graph.graph.inserting_before(node):
        if kind == "aten._softmax.default":
            if node.meta["val"].dtype != value.dtype or not all(reads_memory(u) for u in node.users):
                return
            out = edit.template("row_softmax", x, *scale)
        else:
            out = edit.template("row_logsumexp", x, *scale)
            if kind == "aten._log_softmax.default":
                rows = edit.call(CONVERT, source if scale else x, torch.float32)
                out = edit.call(aten.sub.Tensor, rows, edit.call(aten.unsqueeze.default, out, -1))
            elif node.meta["val"].dim() == value.dim():
                out = edit.call(aten.unsqueeze.default, out, -1)
            if node.meta["val"].dtype != torch.float32:
                out = edit.call(CONVERT, out, node.meta["val"].dtype)
    node.replace_all_uses_with(out)


def _scaled_rows(source: Node) -> tuple[Node, tuple[float, ...]]:
    """What rows are read from memory, and the positive number that they are multiplied with, where they are."""

    def as_it_lies(node: Node) -> Node:
        while node.target is CONVERT and node.args[0].meta["val"].dtype in HALF:
            node = node.args[0]
        return node

    x = as_it_lies(source)
    computed = x.args[0] if x.target is CONVERT and x.meta["val"].dtype in HALF else x  # what was computed in float32 and rounded
    match computed.target, computed.args:
        case (aten.mul.Tensor | aten.div.Tensor), (Node() as rows, int() | float() as factor) if factor > 0:
            rows = as_it_lies(rows)
            if _stored(rows) and rows.meta["val"].dtype == x.meta["val"].dtype:
                return rows, (float(factor if computed.target is aten.mul.Tensor else 1 / factor),)
    return x, ()


def _stored(node: Node) -> bool:
    """Whether a tensor lies in memory, row by row, whatever is made of it."""
    while node.target in VIEWS:
        node = node.args[0]
    return node.op == "placeholder" or str(node.target).startswith(HEAVY)
