"""Variants of written-out attention become one operator: a sink logit for each head, and differential attention (two maps)."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch.fx import Node

from kernelllm.compiler.capture.graph_editor import CONVERT, HALF, VIEWS, Editor, called, group_of
from kernelllm.compiler.capture.rewrites.attention_pattern import (
    HIDES,
    PRODUCTS,
    as_mask,
    between,
    by_condition,
    fits_template,
    join_attention,
    place_heads,
    same_elements,
    scores_of,
    shape_of,
    size_hint,
    transposed,
    unscaled,
    with_heads,
)

aten = torch.ops.aten
_FEW_QUERIES = 16
"""Queries up to which cutting the keys into spans pays more than one pass over them."""


def join_difference(edit: Editor) -> None:
    """``(weights[:, :, 0] - factor * weights[:, :, 1]) @ value`` as two attentions: no weights lie in memory."""
    node, passed = edit.node, set[Node]()
    if str(node.target) not in PRODUCTS or len(node.args) != 2:
        return
    whole: Any = same_elements(node.args[0], passed)
    if whole.target not in (aten.sub.Tensor, aten.add.Tensor) or whole.kwargs:
        return
    terms = [_of_pair(term) for term in whole.args]
    if None in terms or len({t[0] for t in terms if t}) > 1 or {t[1] for t in terms if t} != {0, 1}:
        return
    pairs: Any = terms[0][0]  # type: ignore[index]
    softmax = same_elements(pairs, passed)
    if called(softmax) != "aten._softmax.default" or softmax.meta["val"].dim() != 4 or pairs.meta["val"].dim() != 5:
        return
    rows = pairs.meta["val"].shape[3]
    if not isinstance(rows, int) and str(rows) != shape_of(pairs)[4]:
        return
    with edit.graph.graph.inserting_before(node):
        value = with_heads(edit, node.args[1], whole)
        batch, count, keys, columns = (edit.size(value, d) for d in range(4))
        rows = rows if isinstance(rows, int) else keys
        value = edit.call(aten.expand.default, edit.call(aten.unsqueeze.default, value, 2), [batch, count, 2, keys, columns])
        merged = edit.integer(operator.mul, batch, count)
        batches, doubled = (edit.integer(operator.mul, n, 2) for n in (merged, count))
        value = edit.call(aten.reshape.default, value, [batches, keys, columns])
        weights = edit.call(aten.view.default, pairs, [batches, rows, keys])
        if (dtype := value.meta["val"].dtype) != weights.meta["val"].dtype:  # the difference was rounded
            weights = edit.call(CONVERT, weights, dtype)
        product = edit.call(node.target, weights, value, **node.kwargs)
        heads = edit.call(aten.view.default, product, [batch, doubled, rows, columns])
        both = edit.call(aten.view.default, heads, [batch, count, 2, rows, columns])
        parts = [edit.call(aten.select.int, both, 2, at) for _, at, _ in terms]  # type: ignore[misc]
        parts = [p if f is None else edit.call(aten.mul.Tensor, p, f) for p, (_, _, f) in zip(parts, terms, strict=True)]  # type: ignore[misc]
        out = edit.call(aten.reshape.default, edit.call(whole.target, *parts), [merged, rows, columns])
    join_attention(Editor(edit.graph, product, edit.namespace, edit.options), between(node, softmax))
    if not (product.users and heads.users):  # the attention was joined
        node.replace_all_uses_with(out)


def _of_pair(term: Any) -> tuple[Node, int, Node | None] | None:
    """The tensor [B, H, 2, rows, keys] of which a term is one part, which one, and the number that it is multiplied with."""
    factor = None
    if isinstance(term, Node) and term.target is aten.mul.Tensor and all(isinstance(a, Node) for a in term.args):
        one, other = sorted(term.args, key=lambda a: a.target is not aten.select.int)
        term, factor = one, other
        if factor.meta["val"].dim():
            return None
    fits = isinstance(term, Node) and term.target is aten.select.int and term.args[1] == 2 and shape_of(term.args[0])[2:3] == ["2"]
    return (term.args[0], term.args[2], factor) if fits else None



def join_sinks(edit: Editor) -> None:
    """Attention whose softmax has a score of each head's own behind those of the keys, which is cut off again."""
    node, passed = edit.node, set[Node]()
    if str(node.target) not in PRODUCTS or len(node.args) != 2:
        return
    cut = same_elements(node.args[0], passed)
    if cut.target is not aten.slice.Tensor or cut.args[2] != 0:
        return
    softmax = same_elements(cut.args[0], passed)
    _, outside = group_of(softmax)
    rank = softmax.meta["val"].dim()
    if called(softmax) != "aten._softmax.default" or len(outside) != 1 or rank != 4 or cut.args[1] not in (-1, 3):
        return
    joined = _without_top(outside.pop(), passed)
    if joined.target is not aten.cat.default or len(joined.args[0]) != 2 or joined.args[1:] not in ((-1,), (3,)):
        return
    scores, sinks = joined.args[0]
    found, vector = scores_of(scores), _of_heads(sinks)
    if found is None or vector is None or shape_of(scores)[-1] != shape_of(cut)[-1] or not fits_template(found, node, scores.meta["val"]):
        return
    half = found.product.meta["val"].dtype in HALF
    positive = not found.scale.is_number or found.scale > 0
    if not half or not positive or size_hint(scores.meta["val"].shape[2]) <= _FEW_QUERIES:
        return
    inside = between(node, found.product)
    if not all(u in inside for n in inside - {node} for u in n.users):
        return
    with edit.graph.graph.inserting_before(node):
        by_condition(found, HIDES)
        found.fill = -math.inf  # no row is without a score
        query, key = (unscaled(with_heads(edit, n, scores), found) for n in found.product.args)
        key = unscaled(transposed(edit, key), found)
        heads = edit.call(aten.reshape.default, vector, [edit.size(scores, 1)])
        scale = float(found.scale) if found.scale.is_number else None
        value = with_heads(edit, node.args[1], scores)
        place_heads(edit, edit.template("sink_attention", query, key, value, as_mask(edit, found, rank), heads, scale))


def _without_top(node: Node, passed: set[Node]) -> Node:
    """What the largest of each row is subtracted from, which changes no softmax."""
    node = same_elements(node, passed)
    if node.target is aten.sub.Tensor and isinstance(node.args[1], Node):
        top: Any = same_elements(node.args[1], passed)
        top = top.args[0] if top.target is operator.getitem and top.args[1] == 0 else top
        if top.target in (aten.max.dim, aten.amax.default) and top.args[1] in (-1, 3, [-1], [3]) and top.args[2:] == (True,):
            return same_elements(node.args[0], passed) if top.args[0] is node.args[0] else node
    return node


def _of_heads(node: Node) -> Node | None:
    """[1, H, 1, 1] where the node is that for every batch and query."""
    while node.target is CONVERT:
        node = node.args[0]
    source = node.args[0] if node.target is aten.expand.default else node
    return source if [n for d, n in enumerate(shape_of(source)) if d != 1] == ["1"] * 3 else None


def share_heads(edit: Editor) -> bool:
    """Attention reads a key head for each of its query heads: what repeats heads is left out. Returns whether anything did."""
    query, *pair = edit.node.args[:3]
    single = [_unrepeated(n) for n in pair]
    if all(single):
        with edit.graph.graph.inserting_before(edit.node):
            edit.node.args = (query, *(edit.call(aten.squeeze.dim, n, 2) for n in single), *edit.node.args[3:])
    return all(single)


def _unrepeated(node: Any) -> Node | None:
    """[B, H, 1, S, D] where the node is that, each head repeated, as [B, H * times, S, D]."""
    if node.target not in VIEWS:
        return None
    inner = node.args[0]
    inner = inner.args[0] if inner.target is aten.clone.default else inner
    if inner.target is not aten.expand.default:
        return None
    single, whole, seen = (n.meta["val"].shape for n in (inner.args[0], inner, node))
    fits = len(whole) == 5 and len(single) == 5 and len(seen) == 4 and str(single[2]) == "1"
    same = fits and [str(n) for n in (*single[:2], *single[3:])] == [str(n) for n in (*whole[:2], *whole[3:])]
    return inner.args[0] if same and str(seen[1]) == str(whole[1] * whole[2]) else None


__all__ = ["join_difference", "join_sinks", "share_heads"]
