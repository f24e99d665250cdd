"""One row times a weight of packed integers (int4, for example): one product for each packed part, without unpacking into memory."""

from __future__ import annotations

import functools
import operator

import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from kernelllm.compiler.capture.graph_editor import Editor

aten = torch.ops.aten
ELEMENTWISE = ("aten.clone.default", "aten.mul.Tensor", "aten.sub.Tensor", "aten.add.Tensor", "prims.convert_element_type.default")
_VIEWS = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)


def row_product(edit: Editor, row: Node, matrix: Node) -> Node | None:
    """``row`` [1, K] times ``matrix`` [K, N] in fp32, as [1, N]; None where the K are not packed."""
    if matrix.target is not aten.permute.default or list(matrix.args[1]) != [1, 0]:
        return None
    parts = _parts(edit, matrix.args[0])
    if parts is None:
        return None
    wide = torch.ops.prims.convert_element_type.default
    values = edit.call(aten.view.default, row, [edit.size(parts[0], 1), len(parts)])
    total = None
    for i, part in enumerate(parts):
        value = edit.call(wide, edit.call(aten.select.int, values, 1, i), torch.float32)
        term = edit.call(aten.mul.Tensor, edit.call(wide, part, torch.float32), value)
        total = term if total is None else edit.call(aten.add.Tensor, total, term)
    return edit.call(aten.permute.default, edit.call(aten.sum.dim_IntList, total, [1], True), [1, 0])


def _parts(edit: Editor, node: Node) -> list[Node] | None:
    """A tensor whose elements come in turns from several along the last dimension, as these; None for any other."""
    if node.target in _VIEWS:
        return _flattened(edit, node, _interleaved(node.args[0]) or _parts(edit, node.args[0]))
    if str(node.target) not in ELEMENTWISE:
        return None
    taken = {a: _parts(edit, a) for a in node.args if isinstance(a, Node) and not _same_for_all(a)}
    counts = {len(parts) if parts else 0 for parts in taken.values()}
    if len(counts) != 1 or 0 in counts or any(a.meta["val"].shape != node.meta["val"].shape for a in taken):
        return None
    each = [[taken[a][i] if a in taken else a for a in node.args] for i in range(counts.pop())]  # type: ignore[index]
    return [edit.call(node.target, *args, **node.kwargs) for args in each]


def _flattened(edit: Editor, node: Node, parts: list[Node] | None) -> list[Node] | None:
    """The parts of a tensor as those of ``node``, which sees its last dimensions as one. Sizes are read off the parts."""
    before, after, kept = node.args[0].meta["val"].shape, node.meta["val"].shape, node.meta["val"].dim() - 1
    if parts is None or len(before) <= kept or not all(statically_known_true(before[i] == after[i]) for i in range(kept)):
        return None
    sizes = [edit.size(parts[0], i) for i in range(len(before))]
    last = functools.reduce(lambda x, y: edit.integer(operator.mul, x, y), sizes[kept:])
    return [edit.call(aten.reshape.default, part, [*sizes[:kept], last]) for part in parts]


def _same_for_all(operand: Node) -> bool:
    value = operand.meta["val"]
    return value.dim() == 0 or bool(statically_known_true(value.shape[-1] == 1))


def _interleaved(node: Node) -> list[Node] | None:
    """The tensors that ``torch.stack(tensors, -1)`` has put together."""
    if node.target is not aten.cat.default or len(node.args) < 2 or node.args[1] not in (-1, node.meta["val"].dim() - 1):
        return None
    return list(node.args[0]) if all(_same_for_all(part) for part in node.args[0]) else None
