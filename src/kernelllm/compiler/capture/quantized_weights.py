"""Weights of one byte a number, times a few rows: the product reads the bytes, and the scale of each column is its epilogue."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from kernelllm.compiler.capture.graph_editor import CONVERT, HALF, VIEWS, Editor

aten = torch.ops.aten
_FEW = 64
"""Rows up to which the product is bound by reading the weight."""
_LARGE = 2**20
"""Elements of a weight that is worth it."""


def product(edit: Editor, a: Node, b: Node, bias: Node | None = None) -> Node | None:
    """``a @ b + bias`` where ``b`` is made of bytes and ``a`` has few rows at the problem's own sizes; None elsewhere."""
    found = _bytes_of(edit, b) if fits(a, b) and (bias is None or bias.meta["val"].dim() == 1) else None
    return None if found is None else edit.template("quantized_matmul", a, *found, bias)


def fits(a: Node, b: Node) -> bool:
    """Whether these are few rows and a large weight of bytes."""
    rows, (k, n) = _hint(a.meta["val"].shape[0]), map(_hint, b.meta["val"].shape[-2:])
    shaped = a.meta["val"].dim() == 2 and a.meta["val"].dtype in HALF and 1 < rows <= _FEW and k * n >= _LARGE
    return shaped and _factors(b.args[0] if _turned(b) else b, 0 if _turned(b) else 1) is not None


def scale(edit: Editor) -> None:
    """Such a product takes over a factor, or a term, of each of its columns that follows it."""
    node = edit.node
    name = {aten.mul.Tensor: "scale", aten.add.Tensor: "bias"}.get(node.target)
    if name is None or node.kwargs or not all(_is_tensor(a) for a in node.args):
        return
    for given, other in (node.args, node.args[::-1]):
        chain = [given]
        while chain[-1].target in VIEWS:
            chain.append(chain[-1].args[0])
        made, alike = chain[-1], [n.meta["val"].dtype for n in (given, other, node)]
        if str(made.target) != "kernelllm.quantized_matmul.default" or len(set(alike)) > 1 or any(len(n.users) > 1 for n in chain):
            continue
        a, b, factor, bias = (*made.args, None, None)[:4]
        if bias is not None or (name == "scale" and factor is not None) or not _one_a_column(other, given):
            continue
        with edit.graph.graph.inserting_before(node):
            row = edit.call(aten.reshape.default, other, [edit.size(b, 1)])
            out = edit.template("quantized_matmul", a, b, *((row, None) if name == "scale" else (factor, row)))
            for view in chain[-2::-1]:
                out = edit.call(view.target, out, *view.args[1:])
        node.replace_all_uses_with(out)
        return


def _bytes_of(edit: Editor, b: Node) -> tuple[Node, Node | None] | None:
    """The bytes [K, N] that a matrix is made of, and the factor of each column."""
    turned = _turned(b)
    found = _factors(b.args[0] if turned else b, 0 if turned else 1)
    if found is None:
        return None
    whole = edit.call(aten.permute.default, found[0], [1, 0]) if turned else found[0]
    return whole, found[1] and edit.call(aten.reshape.default, found[1], [edit.size(whole, 1)])


def _turned(b: Node) -> bool:
    return b.target is aten.permute.default and list(b.args[1]) == [1, 0]


def _factors(node: Any, dim: int) -> tuple[Node, Node | None] | None:
    """The bytes that ``node`` is made of, and what multiplies them along ``dim``, where it is nothing else."""
    if not _is_tensor(node) or node.meta["val"].dim() != 2:
        return None
    value = node.meta["val"]
    if value.dtype.itemsize == 1 and value.dtype != torch.bool:
        return node, None
    if node.target is CONVERT:
        return _factors(node.args[0], dim)
    if node.target is aten.mul.Tensor and all(_is_tensor(a) for a in node.args):
        for one, other in (node.args, node.args[::-1]):
            found = _factors(one, dim)
            shape = [1, 1]
            shape[dim] = value.shape[dim]
            other_shape = other.meta["val"].shape
            if found and found[1] is None and [str(n) for n in (*[1] * (2 - len(other_shape)), *other_shape)] == [str(n) for n in shape]:
                return found[0], other
    return None


def _one_a_column(row: Node, product: Node) -> bool:
    sizes, last = row.meta["val"].shape, product.meta["val"].shape[-1]
    one = bool(sizes) and str(sizes[-1]) == str(last) and all(str(n) == "1" for n in sizes[:-1])
    return one and len(sizes) <= product.meta["val"].dim()


def _is_tensor(node: Any) -> bool:
    return isinstance(node, Node) and isinstance(node.meta.get("val"), torch.Tensor)


def _hint(size: Any) -> int:
    return size if isinstance(size, int) else int(size.node.hint or 0)
