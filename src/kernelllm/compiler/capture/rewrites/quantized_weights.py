"""Few rows times a quantised weight (int8, fp8, two int4 a byte): the product reads the bytes, and scales columns in its epilogue."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import Node

from kernelllm.compiler.capture.graph_editor import CONVERT, HALF, VIEWS, Editor

aten = torch.ops.aten
_FEW = 128
"""Rows up to which the product is bound by reading the weight."""
_LARGE = 2**20
"""Elements of a weight that is worth it."""


@dataclass(frozen=True)
class _Weight:
    """What the elements of a weight are made of: ``(values - offset - zero) * scale``."""

    values: Node
    nibbles: bool = False
    """Two numbers a byte, the low half first."""
    scale: Node | None = None
    """With one element for each of the columns, or for each of their groups."""
    zero: Node | None = None
    offset: float = 0.0


def product(edit: Editor, a: Node, b: Node, bias: Node | None = None) -> Node | None:
    """``a @ b + bias`` where ``b`` is made of bytes and ``a`` has few rows at the problem's own sizes; None elsewhere."""
    if not fits(a, b) or (bias is not None and bias.meta["val"].dim() != 1):
        return None
    found = _weight(b)
    assert found is not None
    whole, scale, zero = found.values, found.scale, found.zero
    if _turned(b):
        if whole.meta["val"].dim() == 3:
            sizes = [edit.size(whole, d) for d in range(3)]
            whole = edit.call(aten.reshape.default, whole, [sizes[0], edit.integer(operator.mul, *sizes[1:])])
        whole = edit.call(aten.permute.default, whole, [1, 0])
    if found.nibbles or zero is not None or found.offset or (scale is not None and scale.meta["val"].dim() == 3):
        scale, zero = (t and (edit.call(aten.squeeze.dim, t, 2) if t.meta["val"].dim() == 3 else t) for t in (scale, zero))
    elif scale is not None:
        scale = edit.call(aten.reshape.default, scale, [edit.size(whole, 1)])
    return edit.template("quantized_matmul", a, whole, scale, bias, zero, found.offset, found.nibbles)


def fits(a: Node, b: Node) -> bool:
    """Whether these are few rows and a large weight of bytes."""
    rows, (k, n) = _hint(a.meta["val"].shape[0]), map(_hint, b.meta["val"].shape[-2:])
    shaped = a.meta["val"].dim() == 2 and a.meta["val"].dtype in HALF and 1 < rows <= _FEW and k * n >= _LARGE
    return shaped and _weight(b) is not None


def scale(edit: Editor) -> None:
    """A product by quantised weights takes over the scale, or the offset, of each column that follows it."""
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
        a, b, factor, bias, *rest = (*made.args, None, None)[:4] + tuple(made.args[4:])
        if bias is not None or (name == "scale" and factor is not None) or not _one_a_column(other, given):
            continue
        with edit.graph.graph.inserting_before(node):
            row = edit.call(aten.reshape.default, other, [edit.size(b, 1)])
            out = edit.template("quantized_matmul", a, b, *((row, None) if name == "scale" else (factor, row)), *rest)
            for view in chain[-2::-1]:
                out = edit.call(view.target, out, *view.args[1:])
        node.replace_all_uses_with(out)
        return


def _turned(b: Node) -> bool:
    return b.target is aten.permute.default and list(b.args[1]) == [1, 0]


def _weight(b: Node) -> _Weight | None:
    found = _made_of(b.args[0], turned=True) if _turned(b) else _made_of(b, turned=False)
    if found is None or (found.scale is None and (found.nibbles or found.zero is not None or found.offset)):
        return None
    shapes = {str(_shape(t)) for t in (found.scale, found.zero) if t is not None}
    return found if len(shapes) < 2 else None


def _made_of(node: Any, *, turned: bool) -> _Weight | None:
    """What a weight is made of: [N, K], or [N, groups, K / groups], where it is ``turned``, else [K, N] without groups."""
    if not _is_tensor(node) or node.meta["val"].dim() not in ((2, 3) if turned else (2,)):
        return None
    value = node.meta["val"]
    if value.dtype.itemsize == 1 and value.dtype != torch.bool and not (node.target in VIEWS and turned):
        return _Weight(node)
    if node.target is CONVERT:
        return _made_of(node.args[0], turned=turned)
    if node.target in VIEWS and turned and _shape(node)[0] == _shape(node.args[0])[0]:
        nibbles = _nibbles(node.args[0])
        return _Weight(nibbles, nibbles=True) if nibbles else _made_of(node.args[0], turned=True)
    if node.target is aten.mul.Tensor:
        for one, factor in (node.args, node.args[::-1]):
            found = _made_of(one, turned=turned) if _of_groups(factor, node, turned=turned) else None
            if found and found.scale is None:
                return replace(found, scale=factor)
    if node.target is aten.sub.Tensor and not node.kwargs:
        found = _made_of(node.args[0], turned=turned)
        if found and found.scale is None and found.zero is None and not found.offset:
            if isinstance(node.args[1], int | float):
                return replace(found, offset=float(node.args[1]))
            return replace(found, zero=node.args[1]) if turned and _of_groups(node.args[1], node, turned=True) else None
    return None


def _of_groups(factor: Any, node: Node, *, turned: bool) -> bool:
    """Whether a tensor has one element for each column of a weight, or for each group of neighbours in it."""
    if not _is_tensor(factor):
        return False
    given, whole = _shape(factor), _shape(node)
    if turned:
        return given == [*whole[:-1], "1"] and factor.meta["val"].dtype.is_floating_point
    return given in ([whole[1]], ["1", whole[1]])


def _nibbles(node: Node) -> Node | None:
    """The bytes whose halves ``node`` has side by side, the low ones first."""
    if node.target is not aten.cat.default or len(node.args[0]) != 2 or _shape(node)[-1] != "2":
        return None
    if len(node.args) < 2 or node.args[1] not in (-1, node.meta["val"].dim() - 1):
        return None
    low, high = (n.args[0] if n.target in (aten.unsqueeze.default, *VIEWS) else n for n in node.args[0])
    if high.target is aten.bitwise_and.Scalar and high.args[1] == 15:
        high = high.args[0]
    halves = low.target is aten.bitwise_and.Scalar and low.args[1] == 15 and high.target is aten.__rshift__.Scalar and high.args[1] == 4
    same = halves and low.args[0] is high.args[0] and low.args[0].meta["val"].dtype == torch.uint8
    return low.args[0] if same and low.meta["val"].dim() in (2, 3) and _shape(low) == _shape(node)[:-1] else None


def _shape(node: Node) -> list[str]:
    return [str(n) for n in node.meta["val"].shape]


def _one_a_column(row: Node, product: Node) -> bool:
    sizes, last = row.meta["val"].shape, product.meta["val"].shape[-1]
    one = bool(sizes) and str(sizes[-1]) == str(last) and all(str(n) == "1" for n in sizes[:-1])
    return one and len(sizes) <= product.meta["val"].dim()


def _is_tensor(node: Any) -> bool:
    return isinstance(node, Node) and isinstance(node.meta.get("val"), torch.Tensor)


def _hint(size: Any) -> int:
    return size if isinstance(size, int) else int(size.node.hint or 0)
