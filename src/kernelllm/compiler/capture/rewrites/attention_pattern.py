"""The pattern ``softmax(q @ k^T * scale + mask) @ v`` becomes one attention operator."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch.fx import Node

from kernelllm.compiler.capture.derived_sizes import hints
from kernelllm.compiler.capture.graph_editor import CONVERT, HALF, VIEWS, Editor, called, closed, group_of

aten = torch.ops.aten
PRODUCTS = ("kernelllm.batched_matmul.default", "kernelllm.half_batched_matmul.default", "aten.bmm.default")
_WIDEST = 128
"""Elements of a head that one kernel holds whole."""
HIDES = -1e8
"""A number added to a score from here on leaves nothing of it: a row of such scores alone has equal weights, as with the mask added."""


@dataclass
class AttentionScores:
    """What the softmax reads: ``scale * product``, under a mask."""

    product: Node
    scale: Any = sympy.S.One
    masked: Node | None = None
    """A condition (true: hidden), or what is added."""
    keeps: bool = False
    """The condition is true for what is seen."""
    fill: float = 0.0
    shaped: Node | None = None
    """What the mask is added to: it may see heads as a dimension where the softmax does not."""
    inside: set[Node] = field(default_factory=set)


def join_attention(edit: Editor, beside: Collection[Node] = ()) -> None:
    """Put attention in the place of ``edit.node``, a batched product, where its left operand is a softmax of another's scores.

    ``beside``: what reads the weights too and is about to go.
    """
    node = edit.node
    if str(node.target) not in PRODUCTS or len(node.args) != 2:
        return
    inside: set[Node] = {node}
    softmax = same_elements(node.args[0], inside)
    group, outside = group_of(softmax)
    tops = [n for n in group if n.target is aten.amax.default]
    value = softmax.meta["val"]
    if called(softmax) != "aten._softmax.default" or len(tops) != 1 or len(outside) != 1 or not closed(softmax, group):
        return
    if list(tops[0].args[1]) not in ([-1], [value.dim() - 1]) or value.dim() not in (3, 4):
        return
    found = scores_of(outside.pop())
    if found is None or not fits_template(found, node, value) or (found.shaped and found.shaped.meta["val"].dim() not in (3, 4)):
        return
    inside |= group | found.inside
    if not all(u in inside or u in beside for n in inside - {node} for u in n.users):
        return
    with edit.graph.graph.inserting_before(node):
        _replace(edit, found, softmax)


def same_elements(node: Node, passed: set[Node]) -> Node:
    """What a node is a view, a copy or a conversion of."""
    while node.target in (*VIEWS, aten.clone.default, CONVERT) or _whole(node):
        passed.add(node)
        node = node.args[0]
    return node


def _whole(node: Node) -> bool:
    """Whether an expansion or a slice has all of what it reads, and no more."""
    return node.target in (aten.expand.default, aten.slice.Tensor) and shape_of(node) == shape_of(node.args[0])


def shape_of(node: Node) -> list[str]:
    """The sizes as text."""
    return [str(n) for n in node.meta["val"].shape]


def factor_of(value: Any) -> Any:
    """A factor as an expression; None for a tensor."""
    value = value.meta["val"] if isinstance(value, Node) else value
    if isinstance(value, torch.SymInt | torch.SymFloat):
        return value.node.expr
    return sympy.sympify(value) if isinstance(value, int | float) else None


def scores_of(node: Node) -> AttentionScores | None:
    """The scores that ``node`` is made of; None where it is something else."""
    inside: set[Node] = set()
    node = same_elements(node, inside)
    if str(node.target) in PRODUCTS:
        return AttentionScores(node, inside={node, *inside}) if len(node.args) == 2 else None
    found = None
    if node.target in (aten.mul.Tensor, aten.div.Tensor) and isinstance(node.args[0], Node) and factor_of(node.args[1]) is not None:
        found = scores_of(node.args[0])
        if found is None or found.masked is not None:
            return None
        factor = factor_of(node.args[1])
        found.scale = found.scale * factor if node.target is aten.mul.Tensor else found.scale / factor
    elif node.target is aten.add.Tensor and not node.kwargs and all(isinstance(a, Node) for a in node.args):
        found = _masked(node, *node.args) or _masked(node, *reversed(node.args))
    elif node.target is aten.where.self:
        condition, first, second = node.args
        keeps = constant(second) is not None
        scores, fill = (first, constant(second)) if keeps else (second, constant(first))
        if fill is not None and fill <= HIDES:
            found = _masked(node, scores, condition, keeps=keeps, fill=fill)
    if found is not None:
        found.inside |= {node, *inside}
    return found


def _masked(node: Node, scores: Any, mask: Any, *, keeps: bool = False, fill: float = 0.0) -> AttentionScores | None:
    if shape_of(scores) != shape_of(node):
        return None
    found = scores_of(scores)
    if found is None or found.masked is not None:
        return None
    if mask.meta["val"].dtype not in (torch.bool, torch.float32, found.product.meta["val"].dtype):
        return None
    found.masked, found.keeps, found.fill, found.shaped = mask, keeps, fill, node
    by_condition(found, -math.inf)
    return found


def constant(node: Any) -> float | None:
    """The number that a tensor is full of."""
    if isinstance(node, Node) and node.target in (aten.scalar_tensor.default, aten.full.default):
        value = node.args[0 if node.target is aten.scalar_tensor.default else 1]
        return float(value) if isinstance(value, int | float) else None
    return None


def fits_template(found: AttentionScores, node: Node, weights: torch.Tensor) -> bool:
    """Whether the template computes this: its types, heads that one kernel holds, a scale that is a number."""
    operands = (*found.product.args, node.args[1])
    dtypes = {n.meta["val"].dtype for n in operands}
    width = max(size_hint(found.product.args[0].meta["val"].shape[-1]), size_hint(node.args[1].meta["val"].shape[-1]))
    if len(dtypes) != 1 or not dtypes <= {torch.float32, *HALF} or width > _WIDEST:
        return False
    if shape_of(found.product)[1:] != [str(n) for n in weights.shape[-2:]]:
        return False
    return bool(found.scale.is_number) or is_usual(found.scale, found.product.args[0].meta["val"])


def size_hint(size: Any) -> int:
    """A size at the problem's own sizes."""
    return size if isinstance(size, int) else int(size.node.hint or _WIDEST + 1)


def is_usual(scale: Any, query: torch.Tensor) -> bool:
    """Whether a scale that follows from sizes is one over the square root of the heads' width, which the template takes by itself."""
    return times_usual(scale, query) == 1.0


def times_usual(scale: Any, query: torch.Tensor) -> float | None:
    """How many times the usual scale a scale that follows from sizes is; None where that hangs on them."""
    width = query.shape[-1]
    if isinstance(width, int):
        return None
    own, found = hints(width.node.shape_env), []
    for times in (1, 4, 9):
        at = {symbol: hint * times for symbol, hint in own.items()}
        found.append(complex(scale.xreplace(at).doit() * sympy.sqrt(width.node.expr.xreplace(at).doit())).real)
    alike = all(math.isclose(value, found[0], rel_tol=1e-6) for value in found)
    return (1.0 if math.isclose(found[0], 1.0, rel_tol=1e-6) else found[0]) if alike else None


def _replace(edit: Editor, found: AttentionScores, softmax: Node) -> None:
    weights = found.shaped or softmax
    node, (query, key), rank = edit.node, found.product.args, weights.meta["val"].dim()
    value = with_heads(edit, node.args[1], weights)
    query, key = (unscaled(with_heads(edit, n, weights), found) for n in (query, key))
    key = unscaled(transposed(edit, key), found)
    half = query.meta["val"].dtype in HALF
    scale = None if not found.scale.is_number else float(found.scale)
    if half and edit.options.library and found.masked is None:
        out = edit.template("torch_scaled_dot_product_attention", query, key, value, None, 0.0, False, scale, False)
    else:
        extra = {} if found.masked is None else {"nan_rows": True}
        out = edit.template("half_attention" if half else "attention", query, key, value, as_mask(edit, found, rank), False, scale,
                            allow_tf32=edit.options.matmul_tf32, **extra)
    if rank == 3:
        node.replace_all_uses_with(edit.call(aten.squeeze.dim, out, 1))
    else:
        place_heads(edit, out)


def unscaled(node: Node, found: AttentionScores) -> Node:
    """An operand without the number that it is multiplied with, which becomes the scores'."""
    while node.target is aten.mul.Tensor and found.scale.is_number and isinstance(node.args[0], Node):
        factor = factor_of(node.args[1])
        if factor is None or not factor.is_number or factor <= 0:
            break
        found.scale, node = found.scale * factor, node.args[0]
    return node


def transposed(edit: Editor, key: Node) -> Node:
    """A key [B, H, width, rows] as [B, H, rows, width]."""
    turned = key.target is aten.permute.default and key.args[1] == [0, 1, 3, 2]
    return key.args[0] if turned else edit.call(aten.permute.default, key, [0, 1, 3, 2])


def place_heads(edit: Editor, out: Node) -> None:
    """Attention's result [B, H, rows, columns] in the place of the batched product ``edit.node``."""
    node = edit.node
    others = []
    for user in list(node.users):
        if user.target in VIEWS and shape_of(user) == shape_of(out):
            put_attention(edit, user, out)
        else:
            others.append(user)
    if others:
        laid_out = edit.call(aten.clone.default, out, memory_format=torch.contiguous_format)
        sizes = [edit.size(node.args[0], 0), edit.size(node.args[0], 1), edit.size(node.args[1], 2)]
        node.replace_all_uses_with(edit.call(aten.view.default, laid_out, sizes), lambda user: user in others)


def put_attention(edit: Editor, old: Node, out: Node) -> None:
    """Attention's result in the place of ``old``; heads behind the length are how it lies in memory, so no copy is needed for that."""
    for user in list(old.users):
        if user.target is aten.permute.default and user.args[1] == [0, 2, 1, 3]:
            with edit.graph.graph.inserting_before(user):
                laid_out = edit.call(aten.permute.default, out, [0, 2, 1, 3])
            for copy in [u for u in user.users if u.target is aten.clone.default]:
                copy.replace_all_uses_with(laid_out)
            user.replace_all_uses_with(laid_out)
    old.replace_all_uses_with(out)


def with_heads(edit: Editor, operand: Node, weights: Node) -> Node:
    """An operand [B * H, rows, columns] as [B, H, rows, columns], the first two as those of the weights."""
    if weights.meta["val"].dim() == 3:
        return edit.call(aten.unsqueeze.default, operand, 1)
    node, wanted = operand, shape_of(weights)[:2] + shape_of(operand)[1:]
    while node.target in (*VIEWS, aten.clone.default) or _whole(node):
        node = node.args[0]
        if shape_of(node) == wanted:
            while node.target is aten.clone.default or _whole(node):
                node = node.args[0]
            return node
    sizes = [edit.size(weights, 0), edit.size(weights, 1), edit.size(operand, 1), edit.size(operand, 2)]
    return edit.call(aten.view.default, operand, sizes)


def in_rows(edit: Editor, mask: Node) -> Node:
    """A mask with the keys side by side in memory: the template reads others six times as slowly."""
    strides, sizes = mask.meta["val"].stride(), mask.meta["val"].shape
    scattered = sizes and str(sizes[-1]) != "1" and str(strides[-1]) not in ("0", "1")
    return edit.call(aten.clone.default, mask, memory_format=torch.contiguous_format) if scattered else mask


def as_mask(edit: Editor, found: AttentionScores, rank: int) -> Node | None:
    """What the template takes as a mask: a condition that is true for what is seen, or what is added."""
    mask = found.masked
    if mask is None:
        return None
    if found.product.meta["val"].dtype in HALF:
        mask = in_rows(edit, mask)
    if mask.meta["val"].dtype == torch.bool:
        if math.isinf(found.fill):
            mask = mask if found.keeps else edit.call(aten.logical_not.default, mask)
        else:
            hidden, seen = (edit.call(aten.full.default, [], v, dtype=torch.float32, device=mask.meta["val"].device)
                            for v in (found.fill, 0.0))
            mask = edit.call(aten.where.self, mask, *((seen, hidden) if found.keeps else (hidden, seen)))
    return edit.call(aten.unsqueeze.default, mask, 1) if rank == 3 and mask.meta["val"].dim() == 3 else mask


def between(node: Node, product: Node) -> set[Node]:
    """The product, and all that stands between it and ``node``."""
    found, todo = {product}, [product]
    order = {n: at for at, n in enumerate(node.graph.nodes)}
    while todo:
        for user in todo.pop().users:
            if user not in found and order[user] <= order[node]:
                found.add(user)
                todo.append(user)
    return found


def by_condition(found: AttentionScores, low: float) -> None:
    """A mask that adds zero or a number up to ``low`` as the condition that chooses: the kernel passes over what it hides."""
    mask: Any = found.masked
    if mask is None or mask.meta["val"].dtype == torch.bool:
        return
    mask = same_elements(mask, set())
    numbers = [n for a in mask.args[1:] if (n := constant(a)) is not None] if mask.target is aten.where.self else []
    if len(numbers) == 2 and max(numbers) == 0.0 and min(numbers) <= low:
        found.masked, found.keeps, found.fill = mask.args[0], numbers[0] == 0.0, -math.inf


__all__ = ["in_rows", "join_attention", "put_attention"]
