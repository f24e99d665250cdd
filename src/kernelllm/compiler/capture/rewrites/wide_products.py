"""Products in float32 of tensors that were converted from half precision: the tensor cores multiply them as they were, and sum in float32.

    x.float() @ w.float().t()      ->      x @ w.t(), given out in float32

Each product of two such numbers is exact in float32. Copies of both in float32 need not be, nor three products for one.
"""

from __future__ import annotations

import torch
from torch.fx import Node

from kernelllm.compiler.capture.graph_editor import CONVERT, HALF, Editor

aten = torch.ops.aten
_VIEWS = (aten.permute.default, aten.view.default, aten.reshape.default, aten.expand.default, aten.transpose.int, aten.slice.Tensor)
MUCH = 2**28
"""Multiplications from which on it gains beside a library, which computes in float32 without tensor cores."""


def fits(a: Node, b: Node) -> bool:
    """Whether both were converted to float32 from one type of half precision."""
    return (kind := _kind(a)) is not None and kind == _kind(b)


def product(w: Editor, a: Node, b: Node, bias: Node | None = None) -> Node | None:
    """The product of what was converted; None for other operands."""
    if w.options.short or not fits(a, b):
        return None
    return w.template("wide_matmul", _before(w, a), _before(w, b), *(() if bias is None else (bias,)))


def _kind(node: Node) -> torch.dtype | None:
    while node.target in _VIEWS:
        node = node.all_input_nodes[0]
    if node.target is not CONVERT or node.meta["val"].dtype != torch.float32:
        return None
    kind: torch.dtype = node.all_input_nodes[0].meta["val"].dtype
    return kind if kind in HALF else None


def _before(w: Editor, node: Node) -> Node:
    """What it was ahead of the conversion, seen as it is seen."""
    if node.target is CONVERT:
        return node.all_input_nodes[0]
    return w.call(node.target, _before(w, node.all_input_nodes[0]), *node.args[1:])


__all__ = ["MUCH", "fits", "product"]
