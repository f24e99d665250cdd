"""Heavy operators, at fixed sizes, for which a template was measured to be faster than torch's library on an H200.

fp32 products gain by tensor cores (to fp32's accuracy, in three products or in halves), half-precision ones where a cost model says so,
where their rows do not begin at multiples of 16 bytes, or where there are few rows. Where only the result's would not, the library
gives it such rows. Attention in fp32 gains; in half precision cuDNN's is as fast.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Node

from kernelllm.compiler import template_ops
from kernelllm.compiler.capture.graph_editor import HALF, Editor
from kernelllm.compiler.capture.rewrites import fusions, long_scans, memory_bound_products, quantized_weights, short_sorts, wide_products
from kernelllm.compiler.capture.rewrites.attention_pattern import in_rows, put_attention
from kernelllm.compiler.capture.rewrites.attention_variants import share_heads
from kernelllm.compiler.capture.rewrites.pool_rules import low_memory_pools, max_pool
from kernelllm.compiler.capture.rewrites.scored_attention import inline_mask
from kernelllm.compiler.cost_model import template_gains
from kernelllm.compiler.options import Options
from kernelllm.compiler.templates import matmul
from kernelllm.core import gpus

aten = torch.ops.aten
Rule = Callable[..., Node | None]
_SPLIT: Callable[..., bool] = matmul.matmul_should_split

_LARGE = 2**28
"""Multiplications from which on a half-precision product gains where the library's fast kernels cannot read its rows."""
_WIDE, _MUCH = 2**19, 2**28
"""Elements of the result, and multiplications, from which on a float32 product gains by tensor cores, unless it is one of a batch."""
_WEIGHT = 2**19
"""Elements of a weight from which on few rows times it gain: a launch with others, or with what comes behind, is one less."""
_WIDEST = 128
"""The width of heads up to which each of torch's fast kernels shares key heads."""
_FEW_KEYS = 64
"""Keys up to which torch's attention under a mask is as fast."""
_FEW_QUERIES = 16
"""Queries up to which, as in decoding, the template is faster under any mask."""
_MASKED_KEYS = 512
"""Keys up to which the template is faster under a mask that was not seen to be regular, and is the same for all heads."""
_SHORT_ROW = 512
"""Elements of a row up to which the largest are found faster by a sort of all: 3.6 times as fast at 256, as fast at 1,024."""


def rules(all_rules: Mapping[Any, Rule]) -> dict[Any, Rule]:
    """Of the rules, those for products, pools and the largest of short rows, each for the shapes that gain, and sums in half precision."""

    def only(rule: Rule) -> Rule:
        def chosen(edit: Editor, *args: Any, **kwargs: Any) -> Node | None:
            fits = not kwargs and all(isinstance(a, Node) for a in args) and not quantized_weights.fits(*args[-2:])
            if fits and (made := memory_bound_products.by_shape(edit, *args) or _with_aligned_rows(edit, *args)) is not None:
                return made
            return rule(edit, *args, **kwargs) if _gains(edit.node, edit.options.target) else None

        return chosen

    products = {operator: only(all_rules[operator]) for operator in (aten.mm, aten.addmm, aten.bmm, aten.baddbmm)}
    pools = {aten.max_pool2d_with_indices: max_pool(2, by_torch=True), aten.max_pool3d_with_indices: max_pool(3, by_torch=True)}
    averages = {operator: all_rules[operator] for operator in (aten.avg_pool2d, aten.avg_pool3d)}
    sums = {operator: all_rules[operator] for operator in (aten.scatter_add, aten.scatter_reduce, aten.index_put, aten.index_add)}
    ranked = {aten.topk: _of_short_rows(all_rules[aten.topk]), aten.sort: short_sorts.sort, aten.cumsum: long_scans.cumsum}
    return products | pools | low_memory_pools() | averages | sums | ranked


def _of_short_rows(rule: Rule) -> Rule:
    def chosen(edit: Editor, x: Node, k: Any, dim: int = -1, *more: bool) -> Node | None:
        length = x.meta["val"].shape[dim] if x.meta["val"].dim() else 1
        return rule(edit, x, k, dim, *more) if isinstance(length, int) and length <= _SHORT_ROW else None

    return chosen


def _gains(node: Node, target: str) -> bool:
    left, right = [n for n in node.args if isinstance(n, Node)][-2:]
    if quantized_weights.fits(left, right):
        return True
    *batch, m, k = left.meta["val"].shape
    n = right.meta["val"].shape[-1]
    if not all(isinstance(size, int) for size in (*batch, m, k, n)):
        return False
    dtype = left.meta["val"].dtype
    if dtype == torch.float32 and not batch and wide_products.fits(left, right):
        return bool(m * n * k >= wide_products.MUCH)
    if dtype == torch.float32:
        large = not batch and min(m, n) >= 64 and m * n >= _WIDE and m * n * k >= _MUCH
        return bool(_SPLIT(math.prod(batch), m, n, k)) or (large and not _scattered(left.meta["val"], right.meta["val"]))
    if dtype not in HALF or batch:
        return False
    if m <= fusions.FEW_ROWS:
        return bool(n * k >= _WEIGHT)
    if n % 8 or _scattered(left.meta["val"], right.meta["val"]):
        return bool(m * n * k >= _LARGE)
    return template_gains(m, n, k, gpus.by_arch(target), activation="any")  # fuse() knows which, if any


def _with_aligned_rows(edit: Editor, *args: Node) -> Node | None:
    """A half-precision product whose rows would not begin at multiples of 16 bytes, by the library, in rows that do.

    What leaves the graph must be as torch gives it.
    """
    left, right = args[-2:]
    a, b = left.meta["val"], right.meta["val"]
    if b.dim() != 2 or a.dtype not in HALF or not all(isinstance(n, int) for n in (*a.shape, b.shape[1])):
        return None
    (m, k), n = a.shape, b.shape[1]
    gains = n % 8 and n >= 64 and m > 16 and m * n * k >= _LARGE and not _scattered(a, b)
    if not gains or memory_bound_products.leaves(edit.node):
        return None
    made = edit.template("padded_mm", left, right)
    return made if len(args) == 2 else edit.call(aten.add.Tensor, made, args[0])


def _gains_joined(target: str, product: Node, activation: str, products: int) -> bool:
    """Whether a product that is a template so far gains by the activation behind it, or two by theirs and their gate."""
    a, b = (node.meta["val"] for node in product.args[:2] if isinstance(node, Node))
    (m, k), n = a.shape, b.shape[1]
    by_cost = a.dtype in HALF and m > 16 and n % 8 == 0 and not _scattered(a, b)
    return not by_cost or template_gains(m, n, k, gpus.by_arch(target), activation=activation, products=products)


def _scattered(*operands: torch.Tensor) -> bool:
    """Whether rows of an operand do not begin at multiples of 16 bytes: fast kernels need that."""
    return any(stride != 1 and stride * value.itemsize % 16 for value in operands for stride in value.stride())


def fuse(graph: GraphModule, options: Options) -> None:
    """Fusions of templates; half-precision products that nothing has joined and that gain by nothing else are torch's again."""
    fusions.fuse(graph, options, wide=8192, gains=functools.partial(_gains_joined, options.target))
    for node in list(graph.graph.nodes):
        if str(node.target) != "kernelllm.half_matmul.default" or node.kwargs.get("activation"):
            continue
        a, b, *bias = node.args
        (m, k), n = a.meta["val"].shape, b.meta["val"].shape[1]
        alone = m > 16 and n % 8 == 0 and not _scattered(a.meta["val"], b.meta["val"])
        if alone and not template_gains(m, n, k, gpus.by_arch(options.target)):
            node.target, node.args, node.kwargs = (aten.addmm.default, (bias[0], a, b), {}) if bias else (aten.mm.default, (a, b), {})


def attend(graph: GraphModule, options: Options, *, masked: bool = False) -> None:
    """Attention in half precision is ours: a path that leaves all to torch is none, and this costs it the least.

    ``masked``: only under a mask, which torch's fast kernels do not take, or only where it lies as they want it.
    """
    for node in list(graph.graph.nodes):
        if str(node.target) != "kernelllm.torch_scaled_dot_product_attention.default":
            continue
        query, key, value, mask, dropout, causal, scale, _ = node.args
        if dropout > 0 or query.meta["val"].dim() != 4 or query.meta["val"].dtype not in HALF:
            continue
        if masked and (mask is None or key.meta["val"].shape[2] <= _FEW_KEYS or _by_cudnn(query, key, mask)):
            if mask is None and key.meta["val"].shape[-1] <= _WIDEST and share_heads(Editor(graph, node, None, options)):
                node.args = (*node.args[:-1], True)  # torch's kernels share heads too
            continue
        with graph.graph.inserting_before(node):
            edit = Editor(graph, node, template_ops.register(), options)
            mask = mask and in_rows(edit, mask)
            made = edit.template("half_attention", query, key, value, mask, causal, scale)
        put_attention(edit, node, made)
        edit = Editor(graph, made, edit.namespace, options)
        inline_mask(edit)
        share_heads(edit)
    graph.graph.eliminate_dead_code()


def _by_cudnn(query: Node, key: Node, mask: Node) -> bool:
    """Whether cuDNN is faster under a mask: where the template would pass over none of many keys, and reads no bias of its own a head.

    A mask that is made of positions leaves out whole blocks of keys. On an H200, of 2,048 and 4,096 random ones, cuDNN took 0.66 and 0.56
    of the template's time.
    """
    if query.meta["val"].shape[2] <= _FEW_QUERIES:
        return False  # the template cuts the keys into spans, and reads shared heads where they lie
    heads, theirs, masked, keys = query.meta["val"].shape[1], key.meta["val"].shape[1], mask.meta["val"].shape, key.meta["val"].shape[2]
    if heads != theirs or not isinstance(keys, int) or keys <= _MASKED_KEYS or (*[1] * 3, *masked)[-3] != 1:
        return False
    seen: set[Node] = set()
    todo = [mask]
    while todo and len(seen) < _ORIGINS:
        node = todo.pop()
        if node.target in _REGULAR:
            return False
        seen.add(node)
        todo += [n for n in node.all_input_nodes if n not in seen]
    return key.target is not aten.expand.default


_ORIGINS = 200
_REGULAR = (torch.ops.prims.iota.default, aten.arange.default, aten.arange.start_step, aten.tril.default, aten.triu.default)
"""What makes a mask regular, among the nodes that it comes of, so many of which are looked at."""


def _source(value: Any) -> Any:
    """What a detached tensor is another name of."""
    while isinstance(value, Node) and value.target is aten.alias.default:
        value = value.args[0]
    return value


def keep_sums(graph: GraphModule, options: Options) -> None:
    """Attention and its gradients in one graph: cuDNN's backward, which reads the sums that the forward keeps."""
    space = template_ops.register()
    for node in [n for n in graph.graph.nodes if n.target is space.half_attention_backward.default]:
        given = [*map(_source, node.args), *(False, None)[len(node.args) - 5 :]]
        query, key, value, out, grad, causal, scale = given
        width, values = query.meta["val"].shape[-1], [t.meta["val"] for t in (query, key, value)]
        fits = out.target is space.half_attention.default and (*map(_source, out.args), None)[:4] == (query, key, value, None)
        if not fits or {v.shape[-1] for v in values} != {width} or width > 128 or width % 8:
            continue
        if any(v.stride(-1) != 1 or v.shape[2] <= _FEW_KEYS for v in values):
            continue
        with graph.graph.inserting_before(out):
            edit = Editor(graph, out, space, options)
            kept = edit.template("attention_with_sums", query, key, value, causal, scale)
            attended, sums = (edit.call(operator.getitem, kept, i) for i in range(2))
        with graph.graph.inserting_before(node):
            edit = Editor(graph, node, space, options)
            node.replace_all_uses_with(edit.template("attention_gradients", grad, query, key, value, attended, sums, causal, scale))
        graph.graph.erase_node(node)
        for other in [n for n in graph.graph.nodes if n is not out and _source(n) is out]:
            other.replace_all_uses_with(attended)
        out.replace_all_uses_with(attended)
    graph.graph.eliminate_dead_code()
