"""Gradients of attention that is written out become one operator: the weights are computed again, tile by tile, and never written.

Three products are replaced, those that give the gradients of query, key and value. What they read of the weights is made of positions, of
the product of query and key, and of that of the result's gradient and the value. Where something else reads it, such as the gradient of a
bias, all stays as it is.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch.fx import GraphModule, Node

from kernelllm.compiler import scored_operators, template_ops
from kernelllm.compiler.capture.graph_editor import CONVERT, HALF, VIEWS, Editor
from kernelllm.compiler.capture.rewrites.attention_pattern import (
    AttentionScores,
    constant,
    factor_of,
    shape_of,
    size_hint,
    times_usual,
    transposed,
    with_heads,
)
from kernelllm.compiler.capture.rewrites.element_operators import NotWritable, Piece
from kernelllm.compiler.capture.rewrites.score_expressions import ALL, Place, ScoreWriter
from kernelllm.compiler.capture.rewrites.scored_attention import (
    FEW_QUERIES,
    WrittenScores,
    fits,
    of_empty_rows,
    product_of,
    scaled,
    unconverted,
)
from kernelllm.compiler.options import Options
from kernelllm.compiler.scored_gradients_text import ScoreGradients

aten = torch.ops.aten
_COPIES = (*VIEWS, aten.clone.default, aten.alias.default, aten.detach.default)


@dataclass
class WrittenGradients:
    """The parts of attention and its gradients in one graph. Operands of products as they are, [batch, rows, columns]."""

    weights: Node
    scores: Node
    """What the softmax is of."""
    product: Node
    grads: Node
    """The product that gives the gradient of the weights."""
    value_grad: Node
    taken: Node
    """What the value's gradient takes for weights."""
    query_grad: Node
    key_grad: Node
    change: Node
    """The gradient of the product."""
    out: Node | None
    along: list[Node] = field(default_factory=list)
    """Where they stand, ``out`` is there, too."""


def join_gradients(graph: GraphModule, options: Options) -> None:
    """Replace all gradients of attention that is written out, in place."""
    joined = False
    for node in list(graph.graph.find_nodes(op="call_function", target=aten.div.Tensor)):
        found = _found(node)
        if found is not None:
            joined = _join(graph, found, options) or joined
    if joined:
        graph.graph.eliminate_dead_code()
        graph.recompile()


def _source(node: Any) -> Any:
    while isinstance(node, Node) and (node.target in _COPIES or _whole(node)):
        node = node.args[0]
    return node


def _whole(node: Node) -> bool:
    return node.target in (aten.expand.default, aten.slice.Tensor) and shape_of(node) == shape_of(node.args[0])


def _made_of(node: Any) -> Any:
    """Without conversions, too."""
    node = _source(node)
    while isinstance(node, Node) and node.target is CONVERT:
        node = _source(node.args[0])
    return node


def _found(weights: Node) -> WrittenGradients | None:
    """The gradients that are taken through a softmax."""
    power = _source(weights.args[0])
    inner = _source(power.args[0]) if isinstance(power, Node) and power.target is aten.exp.default else None
    if inner is None or inner.target is not aten.sub.Tensor or inner.kwargs or not all(isinstance(a, Node) for a in inner.args):
        return None
    scores, top, total = inner.args[0], _chosen(inner.args[1]), _chosen(weights.args[1])
    value = weights.meta["val"]
    if getattr(top, "target", None) is not aten.amax.default or getattr(total, "target", None) is not aten.sum.dim_IntList:
        return None
    along = all(list(n.args[1]) in ([-1], [value.dim() - 1]) for n in (top, total))
    if not along or value.dim() not in (3, 4) or _made_of(top.args[0]) is not _made_of(scores) or _source(total.args[0]) is not power:
        return None
    product = product_of(scores)
    if product is None or size_hint(value.shape[-2]) <= FEW_QUERIES or shape_of(scores) != shape_of(weights):
        return None
    return _with_gradients(weights, scores, product)


def _chosen(node: Any) -> Any:
    """What stands for a row's largest score or sum where that is not that of no keys."""
    node = _source(node)
    chosen = isinstance(node, Node) and node.target is aten.where.self and constant(node.args[1]) is not None
    return _source(node.args[2]) if chosen else node


def _with_gradients(weights: Node, scores: Node, product: Node) -> WrittenGradients | None:
    """The products and sums that read what is made of the weights; None where there is more, or less."""
    region, readers = _region(weights)
    grads = _products_for(region, product)
    if len(grads) != 1:
        return None
    from_grads = _region(grads[0])[0]
    kept: dict[str, Node] = {}
    sums: list[Node] = []
    (gradient, turned_value), (query, turned_key) = grads[0].args, product.args
    for node in readers:
        if node.target is aten.sum.dim_IntList and _is_along(node, weights, scores, grads[0]):
            sums.append(node)
            continue
        if node.target is not aten.bmm.default:
            return None
        (left, left_turned), (right, right_turned) = (_matrix(n) for n in node.args)
        if left in region:
            late = left in from_grads
            key = "change" if late and _same(right, right_turned, turned_key, True) and not left_turned else ""
            key = "taken" if not late and left_turned and _same(right, right_turned, gradient, False) else key
            key = "out" if not late and not left_turned and _same(right, right_turned, turned_value, True) else key
            key = "turned" if late and left_turned and _same(right, right_turned, query, False) else key
        else:
            late = right in region and right in from_grads
            key = "key" if late and not right_turned and _same(left, left_turned, query, True) else ""
        if not key or key in kept:
            return None
        kept[key] = node
    keys = kept.get("key") or kept.get("turned")
    if {"change", "taken"} - kept.keys() or keys is None or {"key", "turned"} <= kept.keys() or (sums and "out" not in kept):
        return None
    change, other = _matrix(kept["change"].args[0])[0], _matrix(keys.args[keys is kept.get("key")])[0]
    if _made_of(change) is not _made_of(other):
        return None
    taken = _matrix(kept["taken"].args[0])[0]
    parts = kept["taken"], taken, kept["change"], keys, change, kept.get("out"), sums
    return WrittenGradients(weights, scores, product, grads[0], *parts)


def _products_for(region: set[Node], product: Node) -> list[Node]:
    """The products of as many elements from which what is made of weights is made, too."""
    count, seen = str(product.meta["val"].numel()), {*region, product}
    found, todo = [], [n for node in region for n in node.all_input_nodes]
    while todo:
        node = todo.pop()
        value = node.meta.get("val")
        if node in seen or not isinstance(value, torch.Tensor) or str(value.numel()) != count:
            continue
        seen.add(node)
        if node.target is aten.bmm.default:
            found.append(node)
        else:
            todo += node.all_input_nodes
    return found


def _region(start: Node) -> tuple[set[Node], list[Node]]:
    """What is made of a tensor of scores, of as many elements, and what reads that otherwise."""
    count = str(start.meta["val"].numel())
    region, readers, todo = {start}, dict[Node, None](), [start]
    while todo:
        for user in todo.pop().users:
            value = user.meta.get("val")
            alike = isinstance(value, torch.Tensor) and str(value.numel()) == count and user.target is not aten.bmm.default
            if not alike or user.op != "call_function":
                readers[user] = None
            elif user not in region:
                region.add(user)
                todo.append(user)
    return region, list(readers)


def _is_along(node: Node, weights: Node, scores: Node, grads: Node) -> bool:
    """Whether a sum is that of the weights times their gradient along each row: what the result takes of its own gradient."""
    product = _made_of(node.args[0])
    last = list(node.args[1]) in ([-1], [weights.meta["val"].dim() - 1])
    return last and product.target is aten.mul.Tensor and {_of_any_row(a, scores) for a in product.args} == {_made_of(weights), grads}


def _of_any_row(node: Any, scores: Node) -> Any:
    """What a factor is where a row sees any key; in one that sees none the result is zero, and takes nothing of its gradient."""
    node = _made_of(node)
    chosen = isinstance(node, Node) and node.target is aten.where.self and constant(node.args[1]) == 0.0
    return _made_of(node.args[2]) if chosen and _is_empty(node.args[0], scores) else node


def _is_empty(condition: Any, scores: Node) -> bool:
    """Whether a condition is that a row of these scores sees no key."""
    return of_empty_rows(condition) and _made_of(condition.args[0].args[0]) is _made_of(scores)


def _matrix(node: Node) -> tuple[Node, bool]:
    """What an operand is, and whether turned."""
    turned = False
    while True:
        node = _source_of_rows(node)
        if node.target is not aten.permute.default or list(node.args[1]) not in ([0, 2, 1], [0, 1, 3, 2]):
            return node, turned
        node, turned = node.args[0], not turned


def _source_of_rows(node: Node) -> Node:
    """What an operand is a copy of, is converted from, or is a view of with the same rows."""
    while node.target in (*_COPIES, CONVERT) or _whole(node):
        if shape_of(node)[-2:] != shape_of(node.args[0])[-2:]:
            break
        node = node.args[0]
    return node


def _same(node: Node, turned: bool, other: Node, other_turned: bool) -> bool:
    source, source_turned = _matrix(other)
    return node is source and (turned != source_turned) == other_turned


def _join(graph: GraphModule, found: WrittenGradients, options: Options) -> bool:
    order = {n: at for at, n in enumerate(graph.graph.nodes)}
    results = found.query_grad, found.key_grad, found.value_grad
    first = min(results, key=order.__getitem__)
    (query, key), (gradient, value) = found.product.args, found.grads.args
    turned = value.target is aten.permute.default  # back from what comes earlier in the graph
    needed = [query, key, gradient, value.args[0] if turned else value, found.out if found.along and found.out else gradient]
    laid_out = _scores_with_heads(found)
    if laid_out is None or any(order[n] >= order[first] for n in needed):
        return False
    try:
        code, tensors, numbers, scale = _code(found)
    except NotWritable:
        return False
    if any(order[n] >= order[first] for n in (*tensors, *numbers)):
        return False
    edit = Editor(graph, first, template_ops.register(), options)
    with graph.graph.inserting_before(first):
        query, key, gradient, value, out = (with_heads(edit, n, laid_out) for n in needed)
        operands = [query, transposed(edit, key), value if turned else transposed(edit, value), out, gradient]
        if found.query_grad.meta["val"].dtype in HALF:  # what they were converted from has all of them
            operands = [unconverted(n) for n in operands]
        if not fits([n.meta["val"] for n in operands]):
            return False
        made = edit.call(scored_operators.register_gradients(code), *operands, tensors, numbers, scale, allow_tf32=options.matmul_tf32)
        for at, node in enumerate(results):
            one = edit.call(operator.getitem, made, at)
            shape = [edit.size(found.product.args[0], 0), edit.size(operands[at], 2), edit.size(operands[at], 3)]
            one = edit.call(aten.reshape.default, one, shape)
            if one.meta["val"].dtype != node.meta["val"].dtype:
                one = edit.call(CONVERT, one, node.meta["val"].dtype)
            if node is found.key_grad and not _gives_rows(found):
                one = edit.call(aten.permute.default, one, [0, 2, 1])
            node.replace_all_uses_with(one)
    _forget_sizes(laid_out)
    return True


def _forget_sizes(scores: Node) -> None:
    """Sizes that were read off the scores would keep them."""
    if scores.target in VIEWS:
        for user in [u for u in scores.users if u.target is aten.sym_size.int]:
            size: Any = scores.args[1][user.args[1]]
            if isinstance(size, Node):
                user.replace_all_uses_with(size)


def _scores_with_heads(found: WrittenGradients) -> Node | None:
    """The product in the dimensions of the weights."""
    if found.weights.meta["val"].dim() == 3:
        return found.product
    return next((u for u in found.product.users if u.target in VIEWS and shape_of(u) == shape_of(found.weights)), None)


def _gives_rows(found: WrittenGradients) -> bool:
    """Whether the gradient of the key comes with a row for each key."""
    return _matrix(found.key_grad.args[0])[0] is not _matrix(found.product.args[0])[0]


def _code(found: WrittenGradients) -> tuple[ScoreGradients, list[Node], list[Node], float | None]:
    """The code of the kernels, with what they read. Raises NotWritable."""
    scores = AttentionScores(found.product)
    start = scaled(found.product, scores)
    sizes = [*found.weights.meta["val"].shape]
    sizes[1:1] = [1] * (4 - len(sizes))
    writer = ScoreWriter(sizes, found.product, {start})
    times = 1.0
    if not scores.scale.is_number:
        times = times_usual(scores.scale, found.product.args[0].meta["val"]) or 0.0
        if times == 0.0:
            raise NotWritable("scale")
        writer.scores = f"(scores * {times!r})" if times != 1.0 else "scores"
    index = writer.index if found.weights.meta["val"].dim() == 4 else (writer.index[0], *writer.index[2:])
    made = WrittenScores(writer)
    made.take(found.scores, index)
    code = ScoreGradients(made.finished(), writer.part())
    change, ratio = _unscaled(found.change, scores.scale)
    kinds = {found.weights: "weights", found.grads: "grads", **dict.fromkeys(found.along, "along")}
    writer.known = {node: Piece(name, ALL, torch.float32) for node, name in kinds.items()}
    for node in found.scores.graph.find_nodes(op="call_function", target=aten.eq.Scalar):
        if _is_empty(node, found.scores):
            writer.known[node] = Piece('(log == float("-inf"))', ALL, torch.bool)
    code.weights = writer.value(found.taken, _index_of(found.taken, found, writer)).text
    text = writer.value(change, _index_of(change, found, writer)).text
    factor = float(ratio) * times
    code.change = text if factor == 1.0 else f"{text} * {factor!r}"
    own = code.scores
    own.tensors, own.numbers = len(writer.tensors), len(writer.numbers)
    return code, writer.tensors, writer.numbers, float(scores.scale) if scores.scale.is_number else None


def _unscaled(node: Node, wanted: Any) -> tuple[Node, Any]:
    """Without the numbers that it is multiplied with at last, up to those that make ``wanted`` times a number, and that number. Raises
    NotWritable where they do not."""
    scale = sympy.S.One
    while not (ratio := sympy.simplify(scale / wanted)).is_number:
        inner = _made_of(node)
        factor = factor_of(inner.args[1]) if inner.target in (aten.mul.Tensor, aten.div.Tensor) and len(inner.args) == 2 else None
        if factor is None or not isinstance(inner.args[0], Node):
            raise NotWritable("scale")
        scale = scale * factor if inner.target is aten.mul.Tensor else scale / factor
        node = inner.args[0]
    return node, ratio


def _index_of(node: Node, found: WrittenGradients, writer: ScoreWriter) -> Place:
    """The positions in a tensor of scores. Raises NotWritable."""
    batch, head, *rest = writer.index
    rank, wanted = node.meta["val"].dim(), found.weights.meta["val"].dim()
    if rank == 4 and wanted == 4:
        return writer.index
    if rank != 3:
        raise NotWritable("rank")
    return (batch + head, *rest) if wanted == 4 else (batch, *rest)


__all__ = ["join_gradients"]
