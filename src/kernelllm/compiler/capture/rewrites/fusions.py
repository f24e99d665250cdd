"""Fusions into template operators: activations and gates behind products, repeated key heads of attention, wide softmaxes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._prims_common import is_contiguous_or_false
from torch.fx import GraphModule, Node

from kernelllm.compiler import template_ops
from kernelllm.compiler.capture.graph_editor import HALF, VIEWS, Editor, called, closed, group_of, reads_memory
from kernelllm.compiler.capture.rewrites import quantized_weights, wide_rows
from kernelllm.compiler.capture.rewrites.attention_pattern import join_attention
from kernelllm.compiler.capture.rewrites.attention_variants import join_difference, join_sinks, share_heads
from kernelllm.compiler.capture.rewrites.scored_attention import inline_mask, join_scores
from kernelllm.compiler.options import Options
from kernelllm.compiler.scored_operators import PREFIX

aten = torch.ops.aten
Gains = Callable[[Node, str, int], bool]
"""Whether a product is faster with an activation; how many products there are."""
_ACTIVATIONS = {
    "aten.relu.default": ("relu", (aten.relu.default,)),
    "aten.sigmoid.default": ("sigmoid", (aten.sigmoid.default,)),
    "aten.tanh.default": ("tanh", (aten.tanh.default,)),
    "aten.silu.default": ("silu", (aten.exp.default, aten.sigmoid.default, aten.silu.default)),
    "aten.gelu.default": ("gelu", (aten.erf.default,)),
}
"""By the operator that the module called: the templates' name, and the operators of which its decomposition has one."""
_WIDE = 1024
"""Rows of so many elements are read by templates; shorter ones are held in registers by Inductor's kernels too."""
_END = 2**63 - 1


def fuse(graph: GraphModule, options: Options, wide: int = _WIDE, gains: Gains = lambda *_: True) -> None:
    """Apply all fusions, in place. ``wide``: elements from which on rows are read by templates. ``gains``: what is asked before a product
    takes over an activation, or two products with weights of their own an activation and their gate.
    """
    namespace = template_ops.register()
    for node in list(graph.graph.nodes):
        join_attention(Editor(graph, node, namespace, options))
        join_sinks(Editor(graph, node, namespace, options))
        join_difference(Editor(graph, node, namespace, options))
        join_scores(Editor(graph, node, namespace, options))
    graph.graph.eliminate_dead_code()
    for node in list(graph.graph.nodes):
        edit = Editor(graph, node, namespace, options)
        if node.target in (namespace.attention.default, namespace.half_attention.default):
            inline_mask(edit)
            share_heads(edit)
        elif node.target is namespace.sink_attention.default or str(node.target).startswith(f"kernelllm.{PREFIX}"):
            share_heads(edit)
        elif node.target is aten.mul.Tensor:
            _gate(edit, gains)
        elif called(node) in wide_rows.OPERATORS:
            wide_rows.join(edit, wide)
        quantized_weights.scale(edit)
    graph.graph.eliminate_dead_code()
    for node in list(graph.graph.nodes):
        if _activate(node, gains) or _add(Editor(graph, node, namespace, options), gains):  # each sweep goes through the whole graph
            graph.graph.eliminate_dead_code()
    for node in list(graph.graph.nodes):
        _join(Editor(graph, node, namespace, options))
    for node in list(graph.graph.nodes):
        # not one that has gone into a launch with others
        if _is_product(node) and node.users and (not options.library or _has_few_rows(node)):
            _together(Editor(graph, node, namespace, options))


def _activate(node: Node, gains: Gains) -> bool:
    """Let a product apply the activation that follows it, where heavy operators or the caller read the result from memory.

    Anywhere else the activation is better computed inside the elementwise kernel that reads it. Returns whether it was let.
    """
    found = _activation(node)
    if found is None or not all(reads_memory(u) for u in node.users):
        return False
    name, source, group = found
    chain = [source]
    while chain[-1].target in VIEWS:
        chain.append(chain[-1].args[0])
    product = chain[-1]
    if not _is_product(product) or product.kwargs.get("activation"):
        return False
    if product.meta["val"].dtype != node.meta["val"].dtype or not all(u in group or u in chain for n in chain for u in n.users):
        return False
    if not gains(product, name, 1):
        return False
    product.kwargs = {**product.kwargs, "activation": name}
    node.replace_all_uses_with(source)
    return True


def _add(edit: Editor, gains: Gains) -> bool:
    """Let a product add a vector, and apply the activation that follows: ``relu(x @ w + b)``.

    Before an activation it may be a whole matrix that lies in memory: ``tanh(given + h @ w)``, as in recurrent cells. Returns whether it
    was let.
    """
    name, total, group = _activation(edit.node) or ("", edit.node, {edit.node})
    if total.target is not aten.add.Tensor or total.kwargs or not all(reads_memory(u) for u in edit.node.users):
        return False
    for mine, other in (total.args[::-1], total.args):
        if not _is_tensor(mine) or not _is_tensor(other) or len({n.meta["val"].dtype for n in (mine, other, edit.node)}) != 1:
            continue
        shapes = [[str(d) for d in n.meta["val"].shape] for n in (mine, other, edit.node)]
        vector = len(shapes[1]) == 1 and shapes[1] == shapes[0][-1:]
        whole = bool(name) and shapes[1] == shapes[0] and _in_memory(other)
        found = _finished(mine, total) if shapes[0] == shapes[2] and (vector or whole) else None
        if found is None or found[1] or not all(u in group or u is edit.node or not name for u in total.users):
            continue
        views, product = found[0], found[0][-1]
        if len(product.args) != 2 or product.kwargs.get("activation") or not gains(product, name, 1):
            continue
        if shapes[1][-1] != str(product.meta["val"].shape[-1]) or product.meta["val"].dtype != edit.node.meta["val"].dtype:
            continue
        with edit.graph.graph.inserting_before(edit.node):
            added = other if vector else _as_matrix(edit, other, product)
            kwargs = {**product.kwargs, **({"activation": name} if name else {})}
            out = edit.template(str(product.target).split(".")[1], *product.args, added, **kwargs)
            for view in views[-2::-1]:
                out = edit.call(view.target, out, *view.args[1:])
        edit.node.replace_all_uses_with(out)
        return True
    return False


_JOINS = {aten.add.Tensor: "add", aten.mul.Tensor: "mul"}


def _join(edit: Editor) -> None:
    """Let a product add a tensor that lies in memory, or multiply by it: a residual, a gate.

    Where elementwise kernels alone read the result, they do so themselves at no cost.
    """
    node = edit.node
    if node.target not in _JOINS or node.kwargs or not all(_is_tensor(a) for a in node.args):
        return
    if not any(reads_memory(u) or (u.target in _JOINS and any(_finished(a, u) for a in u.args)) for u in node.users):
        return
    for mine, other in (node.args[::-1], node.args):
        inner, factor = _times_number(mine)
        found = _finished(inner, node if factor is None else mine)
        alike = [(n.meta["val"].dtype, [str(d) for d in n.meta["val"].shape]) for n in (mine, other, node)]
        if found is None or alike[0] != alike[1] or alike[0] != alike[2] or not _in_memory(other):
            continue
        views, activation = found
        product = views[-1]
        if factor is not None and (activation or not _has_few_terms(product)):
            continue
        if edit.options.library and not _has_few_rows(product):
            continue  # where torch's library does plain products, an addition is no reason for a template
        with edit.graph.graph.inserting_before(node):
            first, *rest = product.args
            if factor is not None:
                first = edit.call(aten.mul.Tensor, first, factor)
                first.meta = {**mine.meta, "val": first.meta["val"]}  # the product is named after what the module wrote
            joined = {"other": _as_matrix(edit, other, product), "join": _JOINS[node.target]}
            kwargs = {**product.kwargs, **({"activation": activation} if activation else {}), **joined}
            out = edit.template(str(product.target).split(".")[1], first, *rest, **kwargs)
            for view in views[-2::-1]:
                out = edit.call(view.target, out, *view.args[1:])
        node.replace_all_uses_with(out)
        edit.graph.graph.eliminate_dead_code()
        return


def _times_number(node: Any) -> tuple[Any, Any]:
    """A tensor and the number that it is multiplied with, None where it is multiplied with none."""
    scaled = _is_tensor(node) and node.target is aten.mul.Tensor and _is_tensor(node.args[0]) and not _is_tensor(node.args[1])
    return (node.args[0], node.args[1]) if scaled and len(node.users) == 1 else (node, None)


def _has_few_terms(product: Node) -> bool:
    """Whether a product without a bias sums so few terms that its left operand may be multiplied in the place of its result."""
    left, right = product.args[0].meta["val"], product.args[1].meta["val"]
    return len(product.args) == 2 and 4 * _hint(left.shape[1]) <= _hint(right.shape[1])


def _finished(node: Any, user: Node) -> tuple[list[Node], str] | None:
    """The views of a product down to it, and its activation, where ``node`` is that and ``user`` alone reads it."""
    if not _is_tensor(node) or len(node.users) != 1:
        return None
    name, source, group = _activation(node) or ("", node, set[Node]())
    chain = [source]
    while chain[-1].target in VIEWS:
        chain.append(chain[-1].args[0])
    product = chain[-1]
    if not _is_product(product) or product.kwargs.get("join") or (name and product.kwargs.get("activation")):
        return None
    return (chain, name) if all(u in (user, *group, *chain) for n in chain for u in n.users) else None


def _has_few_rows(product: Node) -> bool:
    """Whether so few rows are multiplied that launches count, in half precision."""
    value = product.args[0].meta["val"]
    return value.dtype in HALF and isinstance(value.shape[0], int) and value.shape[0] <= FEW_ROWS


FEW_ROWS = 16
"""Rows up to which a product reads its weight once, without tiles (``templates/few_rows.py``)."""
_SMALL = 2**31
"""Multiplications below which products of one operand gain by one launch; larger ones have better kernels of their own."""


def _together(edit: Editor) -> None:
    """Three plain products of the same rows with three matrices as ``nn.Linear`` holds them, as in attention, are one launch."""
    first = edit.node
    source = _viewed(first.args[0])
    users = [p for v in _views_of(source[0]) for p in v.users if _is_product(p) and not p.kwargs.get("activation") and p.args[0] is v]
    three = [p for p in users if _viewed(p.args[0]) == source and not p.kwargs.get("join") and _turned(p.args[1]) is not None]
    biases = [p.args[2] if len(p.args) > 2 else None for p in three]
    value = first.args[0].meta["val"]
    if len(three) != 3 or first not in three or len({b is None for b in biases}) != 1 or not all(b is None or _vector(b) for b in biases):
        return
    sizes = [_hint(n) for n in (value.shape[0], value.shape[1])]
    few = sizes[0] <= FEW_ROWS
    if value.dtype not in (HALF if few else (torch.float32, *HALF)) or not is_contiguous_or_false(value):
        return
    if sizes[0] * sizes[1] * sum(_hint(p.args[1].meta["val"].shape[1]) for p in three) >= _SMALL:
        return
    order = list(edit.graph.graph.nodes)
    three.sort(key=order.index)
    biases = [p.args[2] if len(p.args) > 2 else None for p in three]
    weights = [_turned(p.args[1]) for p in three]
    with edit.graph.graph.inserting_before(three[0]):
        out = edit.template("matmul_three", three[0].args[0], *weights, *biases, allow_tf32=edit.options.matmul_tf32)
        parts = [edit.call(operator.getitem, out, i) for i in range(3)]
    for product, part in zip(three, parts, strict=True):
        product.replace_all_uses_with(part)
        edit.graph.graph.erase_node(product)


def _views_of(node: Node) -> list[Node]:
    """A tensor and its views."""
    found = [node]
    for one in found:
        found += [u for u in one.users if u.target in VIEWS and u.args[0] is one]
    return found


def _turned(node: Node) -> Node | None:
    """The parameter or input whose transpose a matrix is."""
    turned = node.target is aten.permute.default and node.args[1] == [1, 0] and node.args[0].op == "placeholder"
    return node.args[0] if turned else None


def _hint(size: Any) -> int:
    return size if isinstance(size, int) else int(size.node.hint or _SMALL)


def _is_tensor(node: Any) -> bool:
    return isinstance(node, Node) and isinstance(node.meta.get("val"), torch.Tensor)


def _as_matrix(edit: Editor, other: Node, product: Node) -> Node:
    """A tensor in the product's own two dimensions."""
    while other.target in VIEWS and other.meta["val"].dim() != 2:
        other = other.args[0]
    if [str(d) for d in other.meta["val"].shape] == [str(d) for d in product.meta["val"].shape]:
        return other
    return edit.call(aten.view.default, other, [edit.size(product.args[0], 0), edit.size(product.args[1], 1)])


def _in_memory(node: Node) -> bool:
    """Whether a tensor lies in memory row by row anyway: it is an input, a template's result, or read by one or by the caller."""
    while node.target in VIEWS:
        node = node.args[0]
    value = node.meta["val"]
    stored = node.op == "placeholder" or str(node.target).startswith("kernelllm.") or any(reads_memory(u) for u in node.users)
    return stored and bool(is_contiguous_or_false(value))


def _is_product(node: Node) -> bool:
    return str(node.target) in ("kernelllm.matmul.default", "kernelllm.half_matmul.default")


def _activation(node: Node) -> tuple[str, Node, set[Node]] | None:
    """The activation whose result ``node`` is, decomposed or not: its name, its input and its nodes."""
    kind = called(node)
    if node.op != "call_function" or kind not in _ACTIVATIONS:
        return None
    name, telling = _ACTIVATIONS[kind]
    group, outside = group_of(node)
    targets = [n.target for n in group]
    if name == "gelu" and aten.tanh.default in targets:
        name, telling = "gelu_tanh", (aten.tanh.default,)
    whole = len(outside) == 1 and sum(t in telling for t in targets) == 1
    alone = closed(node, group) and not any(called(u) == kind for u in node.users)
    return (name, outside.pop(), group) if whole and alone else None


@dataclass(frozen=True)
class _Columns:
    """Some columns of a matrix product, as they are read."""

    product: Node
    start: Any
    """None for all columns; a size may be a node."""
    end: Any
    rows: tuple[Any, ...]
    """The sizes that the rows are viewed in; empty for a matrix."""
    chain: tuple[Node, ...]


def _gate(edit: Editor, gains: Gains) -> None:
    """``activation(x @ gate) * (x @ up)`` in half precision as one operator: of two products, or of two halves of one."""
    node = edit.node
    if node.meta["val"].dtype not in HALF or not all(isinstance(a, Node) for a in node.args):
        return
    for gate, up in (node.args, node.args[::-1]):
        found = _activation(gate)
        one, other = (_columns(found[1]), _columns(up)) if found else (None, None)
        if not found or one is None or other is None or not _one_pair(one, other):
            continue
        inside = {node, *found[2], *one.chain, *other.chain}
        if not all(u in inside or not u.users for n in inside - {node} for u in n.users):
            continue
        if one.product is not other.product and not gains(one.product, found[0], 2):
            continue
        with edit.graph.graph.inserting_before(node):
            (b, b_bias), (g, g_bias) = _weight(edit, other), _weight(edit, one)
            out = edit.template("gated_matmul", one.product.args[0], b, g, found[0], b_bias, g_bias, allow_tf32=edit.options.matmul_tf32)
            if one.rows:
                out = edit.call(aten.view.default, out, [*one.rows, -1])
        node.replace_all_uses_with(out)
        return


def _one_pair(one: _Columns, other: _Columns) -> bool:
    left = [_viewed(c.product.args[0]) for c in (one, other)]
    same = left[0] == left[1] and len(one.rows) == len(other.rows)
    widths = [str(c.chain[0].meta["val"].shape[-1]) for c in (one, other)]
    biased = [len(c.product.args) > 2 for c in (one, other)]
    rows = all(_vector(c.product.args[2]) for c in (one, other)) if biased[0] else True
    distinct = one.product is not other.product or one.start != other.start
    return same and distinct and widths[0] == widths[1] and biased[0] == biased[1] and rows


def _viewed(node: Node) -> tuple[Node, list[str]]:
    """What a node is a view of, and in which shape."""
    shape = [str(n) for n in node.meta["val"].shape]
    while node.target in VIEWS:
        node = node.args[0]
    return node, shape


def _vector(bias: Node) -> bool:
    return bias is None or bias.meta["val"].dim() == 1


def _columns(node: Node) -> _Columns | None:
    """What columns of which product ``node`` is; None where it is something else."""
    start: Any = None
    end: Any = None
    rows: tuple[Any, ...] = ()
    chain = [node]
    while not _is_product(chain[-1]):
        at = chain[-1]
        if at.op != "call_function" or not at.args or not isinstance(at.args[0], Node):
            return None
        last = at.meta["val"].dim() - 1 if isinstance(at.meta.get("val"), torch.Tensor) else -1
        if at.target in VIEWS and not rows and str(at.args[0].meta["val"].shape[-1]) == str(at.meta["val"].shape[-1]):
            rows = tuple(at.args[1][:-1])
        elif at.target is operator.getitem and at.args[0].target is aten.split.Tensor and start is None:
            _, size, *dim = at.args[0].args
            if len(at.args[0].meta["val"]) != 2 or (dim[0] if dim else 0) not in (-1, last):
                return None
            start, end = (0, size) if at.args[1] == 0 else (size, _END)
            chain.append(at.args[0])
        elif at.target is aten.slice.Tensor and start is None and len(at.args) == 4 and at.args[1] in (-1, last):
            width = at.args[0].meta["val"].shape[-1]
            if not all(isinstance(n, int) for n in (*at.args[2:4], width)):
                return None
            start, end = at.args[2] % width, min(at.args[3], width)
        else:
            return None
        chain.append(chain[-1].args[0])
    product = chain[-1]
    plain = not product.kwargs.get("activation") and (not rows or all(not isinstance(r, int) or r >= 0 for r in rows))
    return _Columns(product, start, end, rows, tuple(chain)) if plain else None


def _weight(edit: Editor, columns: _Columns) -> tuple[Node, Node | None]:
    """The columns' part of the product's right operand and bias."""
    weight, bias = columns.product.args[1], columns.product.args[2] if len(columns.product.args) > 2 else None
    if columns.start is None:
        return weight, bias
    part = edit.call(aten.slice.Tensor, weight, 1, columns.start, columns.end)
    return part, edit.call(aten.slice.Tensor, bias, 0, columns.start, columns.end) if bias is not None else None
