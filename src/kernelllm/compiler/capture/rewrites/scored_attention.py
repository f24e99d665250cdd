"""Attention with a score function (a bias, a soft cap) or a mask computed from positions becomes one operator.

Its kernel computes both tile by tile, and skips keys that no query of a tile sees.
"""

from __future__ import annotations

import math
from typing import Any

import sympy
import torch
from torch.fx import Node

from kernelllm.compiler import scored_operators
from kernelllm.compiler.capture.graph_editor import CONVERT, HALF, VIEWS, Editor, called, group_of
from kernelllm.compiler.capture.rewrites import seen_keys
from kernelllm.compiler.capture.rewrites.attention_pattern import (
    HIDES,
    PRODUCTS,
    AttentionScores,
    between,
    constant,
    factor_of,
    place_heads,
    same_elements,
    shape_of,
    size_hint,
    times_usual,
    transposed,
    unscaled,
    with_heads,
)
from kernelllm.compiler.capture.rewrites.element_operators import NotWritable
from kernelllm.compiler.capture.rewrites.score_expressions import Place, ScoreWriter, broadcast
from kernelllm.compiler.scored_text import ScoreCode

aten = torch.ops.aten
FEW_QUERIES = 16
"""Queries up to which scores are few, and cutting the keys into spans pays more than one pass over them."""
_WIDEST = 128
_MOST = 80
"""Statements of one kernel."""


def join_scores(edit: Editor) -> None:
    """Put one operator in the place of ``edit.node``, a batched product, whose left operand is a softmax of what is made of another's
    result element by element."""
    node, passed = edit.node, set[Node]()
    if str(node.target) not in PRODUCTS or len(node.args) != 2:
        return
    softmax = same_elements(node.args[0], passed)
    filled = softmax.target is aten.where.self and constant(softmax.args[1]) == 0.0 and of_empty_rows(softmax.args[0])
    softmax = same_elements(softmax.args[2], passed) if filled else softmax
    value = softmax.meta["val"]
    if called(softmax) != "aten._softmax.default" or value.dim() not in (3, 4):
        return
    group, outside = group_of(softmax)
    tops = [n for n in group if n.target is aten.amax.default]
    if len(tops) != 1 or len(outside) != 1 or list(tops[0].args[1]) not in ([-1], [value.dim() - 1]):
        return
    scores = outside.pop()
    product = product_of(scores)
    if product is None or size_hint(value.shape[-2]) <= FEW_QUERIES or shape_of(scores) != shape_of(softmax):
        return
    inside = between(node, product)
    if not all(u in inside for n in inside - {node} for u in n.users):
        return
    with edit.graph.graph.inserting_before(node):
        _joined(edit, scores, product, not filled)


def of_empty_rows(condition: Any) -> bool:
    """Whether a condition is that the largest of a row is minus infinity."""
    fits = isinstance(condition, Node) and condition.target is aten.eq.Scalar and condition.args[1] == -math.inf
    return fits and condition.args[0].target is aten.amax.default


def product_of(scores: Node) -> Node | None:
    """The only batched product of as many elements from which scores are made."""
    found, seen, todo = [], {scores}, [scores]
    count = scores.meta["val"].numel()
    while todo:
        node = todo.pop()
        if str(node.target) in PRODUCTS and len(node.args) == 2 and str(node.meta["val"].numel()) == str(count):
            found.append(node)
            continue
        new = [n for n in node.all_input_nodes if n not in seen]
        seen.update(new)
        todo += new
    return found[0] if len(found) == 1 else None


def _joined(edit: Editor, scores: Node, product: Node, nan_rows: bool) -> None:
    found = AttentionScores(product)
    start = scaled(product, found)
    operands = _operands(edit, found, scores)
    if operands is None:
        return
    sizes = [*scores.meta["val"].shape]
    sizes[1:1] = [1] * (4 - len(sizes))
    writer = ScoreWriter(sizes, product, {start})
    if not found.scale.is_number and (times := times_usual(found.scale, operands[0].meta["val"])) != 1.0:
        writer.scores = f"(scores * {times!r})"
    index = writer.index if scores.meta["val"].dim() == 4 else (writer.index[0], *writer.index[2:])
    made = WrittenScores(writer)
    try:
        made.take(scores, index)
        code = made.finished()
    except NotWritable:
        return
    scale = float(found.scale) if found.scale.is_number else None
    kwargs = {"nan_rows": True} if nan_rows else {}
    out = edit.call(scored_operators.register(code), *operands, writer.tensors, writer.numbers, scale,
                    allow_tf32=edit.options.matmul_tf32, **kwargs)
    if scores.meta["val"].dim() == 3:
        edit.node.replace_all_uses_with(edit.call(aten.squeeze.dim, out, 1))
    else:
        place_heads(edit, out)


def scaled(product: Node, found: AttentionScores) -> Node:
    """The product times numbers, as far as nothing else reads it; they become the scale."""
    node = last = product
    while len(node.users) == 1:
        user = next(iter(node.users))
        if user.target in (aten.mul.Tensor, aten.div.Tensor) and user.args[0] is node and (factor := factor_of(user.args[1])) is not None:
            scale = found.scale * factor if user.target is aten.mul.Tensor else found.scale / factor
            if not scale.is_number and times_usual(scale, product.args[0].meta["val"]) is None:
                break
            found.scale, last = scale, user
        elif user.target not in (*VIEWS, aten.clone.default, CONVERT):
            break
        node = user
    return last


def _operands(edit: Editor, found: AttentionScores, weights: Node) -> list[Node] | None:
    """Query, key and value [B, H, rows, columns] of one type that the kernel takes."""
    query, key = (unscaled(with_heads(edit, n, weights), found) for n in found.product.args)
    key = unscaled(transposed(edit, key), found)
    operands = [unconverted(n) for n in (query, key, with_heads(edit, edit.node.args[1], weights))]
    values = [n.meta["val"] for n in operands]
    known = found.scale.is_number or times_usual(found.scale, values[0]) is not None
    return operands if known and fits(values) else None


def fits(values: list[torch.Tensor]) -> bool:
    """Whether query, key and value have one type and a width that the kernel takes."""
    dtype = values[0].dtype
    widest = _WIDEST if dtype == torch.float32 else 2 * _WIDEST
    known = {v.dtype for v in values} == {dtype} and dtype in (torch.float32, *HALF)
    return known and all(v.dim() == 4 and size_hint(v.shape[-1]) <= widest for v in values)


def unconverted(node: Node) -> Node:
    """Halves in the place of what they were converted to."""
    while node.target is CONVERT and node.args[0].meta["val"].dtype in HALF and node.meta["val"].dtype == torch.float32:
        node = node.args[0]
    return node


class WrittenScores:
    """Scores on their way to code: conditions that hide some stand apart from what is done to them."""

    def __init__(self, writer: ScoreWriter) -> None:
        self.writer, self.code = writer, ScoreCode(keep=writer.part())
        self.added: list[tuple[Node, Place]] = []
        self.sees = True
        """False where a row of hidden scores alone would have equal weights."""

    def take(self, node: Node, index: Place) -> None:
        """All of the code for scores ``node``. Raises NotWritable."""
        while (found := self._without_mask(*self._source(node, index))) is not None:
            node, index = found
        self.code.scores = self.writer.part()
        self.code.result = " + ".join(self.writer.value(n, at).text for n, at in [(node, index), *self.added])

    def take_mask(self, mask: Node, index: Place) -> None:
        """The same for scores to which a mask is added, or that stay where it holds."""
        if mask.meta["val"].dtype == torch.bool:
            seen_keys.add(self.code, self.writer, mask, index)
            return
        if not self._added(mask, index):
            self.added.append((mask, index))
        self.code.scores = self.writer.part()
        self.code.result = " + ".join(["scores", *(self.writer.value(n, at).text for n, at in self.added)])

    def _source(self, node: Node, index: Place) -> tuple[Node, Place]:
        """What a node is a view of, or was converted from."""
        while node not in self.writer.scaled:
            converts = node.target is CONVERT and node.meta["val"].is_floating_point()
            moved: Any = (node.args[0], index) if converts else self.writer.moved(node, index)
            if moved is None or not moved[0].meta["val"].is_floating_point():
                break
            node, index = moved
        return node, index

    def _without_mask(self, node: Node, index: Place) -> tuple[Node, Place] | None:
        if node.target is aten.where.self and (found := self._hidden(node, index)) is not None:
            return found
        if node.target is aten.add.Tensor and not node.kwargs and all(isinstance(a, Node) for a in node.args):
            for scores, added in (node.args, node.args[::-1]):
                if shape_of(scores) == shape_of(node) and self._added(added, broadcast(added, index)):
                    return scores, index
        return None

    def _added(self, node: Node, index: Place) -> bool:
        """Note what is added to scores, where it is a mask at least."""
        node, index = self._source(node, index)
        found = self._hidden(node, index) if node.target is aten.where.self else None
        if found is not None and constant(found[0]) != 0.0:
            self.added.append(found)
        return found is not None

    def _hidden(self, node: Node, index: Place) -> tuple[Node, Place] | None:
        """What ``node`` is where a condition, which is noted, does not hide it."""
        condition, *ways = node.args
        for scores, other, holds in ((*ways, True), (*ways[::-1], False)):
            fill = constant(other)
            if fill is not None and fill <= HIDES and isinstance(scores, Node) and constant(scores) != fill:
                seen_keys.add(self.code, self.writer, condition, broadcast(condition, index), holds)
                self.sees = self.sees and fill == -math.inf
                return scores, broadcast(scores, index)
        return None

    def finished(self) -> ScoreCode:
        """The code. Raises NotWritable."""
        code, writer = self.code, self.writer
        if not self.sees and not self._each_sees_itself():
            raise NotWritable("rows of equal weights")
        code.rows, code.tensors, code.numbers = writer.rows.statements, len(writer.tensors), len(writer.numbers)
        if len(code.all().splitlines()) > _MOST:
            raise NotWritable("too long")
        return code

    def _each_sees_itself(self) -> bool:
        """Whether each query sees the key at its own position, for all sizes."""
        rows, columns = (one[0].size if one else sympy.S.One for one in self.writer.index[2:])
        if self.code.other or rows != columns:
            return False
        named = {f"number_{i}": sympy.Symbol(f"number_{i}", integer=True, positive=True) for i in range(len(self.writer.numbers))}
        at = sympy.Symbol("t", integer=True, nonnegative=True)
        bounds = [(text, 1) for text in self.code.upper] + [(text, -1) for text in self.code.lower]
        if any("row_" in text or "tl." in text or "batch" in text or "head" in text for text, _ in bounds):
            return False
        return all((sign * (sympy.sympify(text, locals=named | {"t": at}) - at)).is_nonnegative for text, sign in bounds)


def inline_mask(edit: Editor) -> None:
    """Attention below a mask that is made of positions: it is computed in the kernel, which passes over what it hides."""
    node = edit.node
    given: list[Any] = [*node.args[:6], *(None, False, None)[len(node.args[:6]) - 3 :]]
    query, key, value, mask, causal, scale = given
    if not isinstance(mask, Node) or query.meta["val"].dim() != 4:
        return
    values, factor = [n.meta["val"] for n in (query, key, value)], scale if scale is None else sympy.sympify(scale)
    if size_hint(values[0].shape[2]) <= FEW_QUERIES or not fits(values) or (factor is not None and not factor.is_number):
        return
    writer = ScoreWriter([*values[0].shape[:3], values[1].shape[2]], None, set())
    scores = WrittenScores(writer)
    if causal:
        scores.code.near.append("(s <= t)")
        scores.code.upper.append("t")
    try:
        scores.take_mask(mask, broadcast(mask, writer.index))
        code = scores.finished()
    except NotWritable:
        return
    if any({"t", "s"} <= of for of in writer.loads) or not (code.near or writer.pairs):  # the same is read for each pair as before
        return
    kwargs = {name: node.kwargs[name] for name in ("allow_tf32", "nan_rows") if node.kwargs.get(name)}
    with edit.graph.graph.inserting_before(node):
        made = edit.call(scored_operators.register(code), query, key, value, writer.tensors, writer.numbers,
                         None if factor is None else float(factor), **kwargs)
    node.replace_all_uses_with(made)
    edit.node = made


__all__ = ["FEW_QUERIES", "WrittenScores", "fits", "inline_mask", "join_scores", "of_empty_rows", "product_of", "scaled", "unconverted"]
