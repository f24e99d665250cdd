"""The order of all rewrites of the captured graph; heavy operators become template operators (:mod:`kernelllm.compiler.template_ops`)."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._prims_common import is_contiguous_or_false
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from kernelllm.compiler import template_ops
from kernelllm.compiler.capture import convolution_windows, left_to_torch
from kernelllm.compiler.capture.convolution_gradients import replace_gradients
from kernelllm.compiler.capture.decompositions import plain_rules
from kernelllm.compiler.capture.graph_editor import HALF, Editor, drop_copies, of_halves
from kernelllm.compiler.capture.rewrites import (
    batched_steps,
    faster_convolutions,
    faster_templates,
    forwarded_slices,
    fusions,
    joined_convolutions,
    joined_scatters,
    max_without_index,
    mish,
    one_hot,
    packed_weights,
    quantized_weights,
    repeated_products,
    scatter_rules,
    score_gradients,
    shifted_scans,
    short_sorts,
    single_products,
    staged_reductions,
    unstacked_reductions,
    wide_products,
)
from kernelllm.compiler.capture.rewrites.depthwise import sum_over_window
from kernelllm.compiler.capture.rewrites.memory_bound_products import as_sum, of_few_terms
from kernelllm.compiler.capture.rewrites.pool_rules import avg_pool, low_memory_pools, max_pool
from kernelllm.compiler.options import Options

aten = torch.ops.aten


def run(graph: GraphModule, options: Options) -> None:
    """Apply, in place, the passes that ``options.extern`` asks for. Raises CaptureError for ``forbid`` without a template.

    Raises it for ``allow`` too where torch would be left all that there is to compute.
    """
    convolution_windows.write_out(graph, options)
    drop_copies(graph)
    one_hot.rewrite(graph, options)
    unstacked_reductions.rewrite(graph, options)
    if not options.backward:
        max_without_index.rewrite(graph, options)
        mish.rewrite(graph, options)
    if not options.short:
        shifted_scans.rewrite(graph, options)
        joined_scatters.rewrite(graph, options)
        repeated_products.merge(graph)
        batched_steps.join(graph, options)
        forwarded_slices.read_through(graph, options)
        if not options.backward and (options.extern != "allow" or options.mixed):
            score_gradients.join_gradients(graph, options)
        single_products.rewrite(graph, options)
    if not options.library:
        _chain_concatenations(graph, options)
        rules = (_TORCH_RULES if options.extern == "allow" else _RULES) | low_memory_pools()
        if options.short and not options.backward and options.extern != "allow":
            rules = rules | plain_rules.RULES
        _replace(graph, options, rules | staged_reductions.RULES if options.split_reductions else rules)
    if options.library:
        faster_templates.keep_sums(graph, options)
    if options.library and options.mixed:
        faster_convolutions.rewrite(graph, options)
        joined_convolutions.join(graph, options)
        _replace(graph, options, faster_templates.rules(_RULES) | staged_reductions.behind_rows())
        faster_templates.fuse(graph, options)
        if left_to_torch.all_left(graph):
            faster_templates.attend(graph, options)
    _lay_out(graph, options)
    if options.extern == "allow":
        graph.graph.eliminate_dead_code()
        left_to_torch.refuse_all(graph)
    else:
        if not options.short:  # one kernel after the other
            fusions.fuse(graph, options)
        if options.extern == "forbid":
            left_to_torch.refuse_heavy(graph)
    if not options.short:
        repeated_products.merge(graph)  # templates that took over what is around them: one for both norms of the same rows
    graph.graph.eliminate_dead_code()
    graph.recompile()


def sum_thin_products(graph: GraphModule, options: Options) -> None:
    """Products of matrices with vectors join the kernels around them, as they do where they are not left to torch."""
    _replace(graph, options, {aten.bmm: lambda w, a, b: _bmm(w, a, b) if _is_thin(w, a, b) else None})
    graph.graph.eliminate_dead_code()
    graph.recompile()


def _replace(graph: GraphModule, options: Options, rules: Mapping[Any, Callable[..., Node | None]]) -> None:
    namespace = template_ops.register()
    for node in list(graph.graph.nodes):
        rule = rules.get(getattr(node.target, "_overloadpacket", None)) if node.op == "call_function" else None
        if rule is None:
            continue
        with graph.graph.inserting_before(node):
            made = rule(Editor(graph, node, namespace, options), *node.args, **node.kwargs)
        if made is not None:
            node.replace_all_uses_with(made)
            graph.graph.erase_node(node)


_LIBRARY_LAYOUTS = re.compile(r"aten\.(_?linalg_|_fft_|cholesky|lu_|geqrf|ormqr|triangular_solve)")
"""Operators of torch whose results have other strides on another device."""


def _lay_out(graph: GraphModule, options: Options) -> None:
    """Kernels read what such an operator of torch gives as row-major tensors. They cannot make complex ones so, which torch does."""
    namespace = template_ops.register()
    results = [n for n in graph.graph.nodes if _LIBRARY_LAYOUTS.match(str(n.target))]
    results += [u for n in results for u in n.users if u.target is operator.getitem]
    for node in results:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and (value.is_complex() or any(u.op != "output" for u in node.users)):
            kinds = ("output",) if not value.is_complex() else ()
            with graph.graph.inserting_after(node):
                laid_out = Editor(graph, node, namespace, options).template("torch_contiguous", node)
            node.replace_all_uses_with(laid_out, lambda user, made=laid_out, kept=kinds: user is not made and user.op not in kept)


def _chain_concatenations(graph: GraphModule, options: Options) -> None:
    """``cat(a, b)``, ``cat(a, b, c)``, ... as one concatenation on top of the other.

    A dense block joins everything so far in front of every layer. Written out, each layer's kernels pick from a longer list of
    tensors than the layer before; chained, all layers share theirs.
    """
    namespace = template_ops.register()
    made: dict[tuple[Any, ...], Node] = {}
    chained: dict[Node, None] = {}
    cats = [n for n in graph.graph.nodes if n.target is aten.cat.default and len({v.meta["val"].dtype for v in n.args[0]}) == 1]
    for node in cats:
        parts, dim = tuple(node.args[0]), node.args[1] if len(node.args) > 1 else 0
        start = next((k for k in range(len(parts) - 1, 1, -1) if (parts[:k], dim) in made), 0)
        made[parts, dim] = node
        if start:
            chained.update(dict.fromkeys((made[parts[:start], dim], node)))
    made.clear()
    for node in chained:
        parts, dim = tuple(node.args[0]), node.args[1] if len(node.args) > 1 else 0
        start = next((k for k in range(len(parts) - 1, 1, -1) if (parts[:k], dim) in made), 1)
        joined = made[parts[:start], dim] if start > 1 else parts[0]
        with graph.graph.inserting_before(node):
            for part in parts[start:]:
                joined = Editor(graph, node, namespace, options).template("concat", joined, part, dim % node.meta["val"].dim())
        made[parts, dim] = joined
        node.replace_all_uses_with(joined)
        graph.graph.erase_node(node)


def _heavy_dtype(node: Node) -> bool:
    return bool(node.meta["val"].dtype.is_floating_point)


def _product(a: Node) -> str:
    return "half_matmul" if a.meta["val"].dtype in HALF else "matmul"


_OF_ONE = ("aten.permute.default", "aten.view.default", *packed_weights.ELEMENTWISE)


def _is_dequantized(node: Node) -> bool:
    """Whether a matrix is made of integers, element by element."""
    while node.meta["val"].dtype.is_floating_point and str(node.target) in _OF_ONE and isinstance(node.args[0], Node):
        node = node.args[0]
    return not node.meta["val"].dtype.is_floating_point


def _row_product(w: Editor, a: Node, b: Node) -> Node:
    """One row times a matrix as a sum, which joins the kernel that makes the matrix: its integers are read once and nothing is written."""
    kind, wide = a.meta["val"].dtype, torch.ops.prims.convert_element_type.default
    out = packed_weights.row_product(w, a, b)
    if out is None:
        column = w.call(wide, w.call(aten.permute.default, a, [1, 0]), torch.float32)
        terms = w.call(aten.mul.Tensor, w.call(wide, b, torch.float32), column)
        out = w.call(aten.sum.dim_IntList, terms, [0], True)
    return w.call(wide, out, kind)


def _batched(a: Node) -> str:
    return "half_batched_matmul" if a.meta["val"].dtype in HALF else "batched_matmul"


def _mm(w: Editor, a: Node, b: Node) -> Node | None:
    if _heavy_dtype(a) and isinstance(a.meta["val"].shape[0], int) and a.meta["val"].shape[0] == 1 and _is_dequantized(b):
        return _row_product(w, a, b)
    if made := quantized_weights.product(w, a, b):
        return made
    if a.meta["val"].dtype == torch.int32 and (bytes_ := [_of_bytes(w, t) for t in (a, b)]) and None not in bytes_:
        return w.template("int8_matmul", *bytes_)
    if _heavy_dtype(a) and of_few_terms(w, a):
        return as_sum(w, a, b)
    if made := wide_products.product(w, a, b):
        return made
    return w.template(_product(a), a, b, allow_tf32=w.options.matmul_tf32) if _has_product(a) else None


def _has_product(a: Node) -> bool:
    """Torch has products of integers on the CPU alone."""
    dtype = a.meta["val"].dtype
    return bool(dtype.is_floating_point or (dtype.is_signed and not dtype.is_complex))


def _of_bytes(w: Editor, node: Node) -> Node | None:
    """The int8 tensor that a tensor of whole numbers is made of by a conversion, and views behind it; None for another."""
    if node.target is torch.ops.prims.convert_element_type.default or node.target is aten._to_copy.default:
        source = node.args[0]
        return source if source.meta["val"].dtype == torch.int8 else None
    if node.target in (aten.permute.default, aten.view.default, aten.expand.default) and (inner := _of_bytes(w, node.args[0])) is not None:
        return w.call(node.target, inner, *node.args[1:])
    return None


def _whole_row(w: Editor, b: Node, c: Node) -> Node:
    """A bias with an element for each column of the product."""
    columns = b.meta["val"].dim() - 1
    short = c.meta["val"].dim() == 1 and str(c.meta["val"].shape[0]) != str(b.meta["val"].shape[columns])
    return w.call(aten.expand.default, c, [w.size(b, columns)]) if short else c


def _addmm(w: Editor, c: Node, a: Node, b: Node, beta: Any = 1, alpha: Any = 1) -> Node | None:
    """``addmm`` and ``baddbmm``: with the factors 1 as a product's epilogue."""
    if not _heavy_dtype(a):
        return None
    c, batched = _whole_row(w, b, c), a.meta["val"].dim() == 3
    if beta == 1 and alpha == 1:
        if not batched and (made := quantized_weights.product(w, a, b, c) or wide_products.product(w, a, b, c)):
            return made
        return w.template(_batched(a) if batched else _product(a), a, b, c, allow_tf32=w.options.matmul_tf32)
    return w.template("baddbmm" if batched else "addmm", c, a, b, beta, alpha, allow_tf32=w.options.matmul_tf32)


def _bmm(w: Editor, a: Node, b: Node) -> Node | None:
    if _is_thin(w, a, b):
        return as_sum(w, a, b)
    return w.template(_batched(a), a, b, allow_tf32=w.options.matmul_tf32 or of_halves(a, b)) if _has_product(a) else None


def _is_thin(w: Editor, a: Node, b: Node) -> bool:
    """Whether one is a batch of vectors; the other may be one too, and a product of few terms is thin as well."""
    return _heavy_dtype(a) and (of_few_terms(w, a) or 1 in _numbers(a.meta["val"].shape[1], b.meta["val"].shape[2]))


def _numbers(*sizes: Any) -> list[int]:
    return [size for size in sizes if isinstance(size, int)]


def _mv(w: Editor, a: Node, x: Node) -> Node | None:
    return w.template("matvec", a, x) if _heavy_dtype(a) else None


def _convolution(w: Editor, x: Node, weight: Node, bias: Node | None, stride: Any, padding: Any, dilation: Any, transposed: bool,
                 output_padding: Any, groups: Any) -> Node:
    """A template, or torch's convolution as an operator of ours: Inductor's own lowering turns every size that it meets into a number.

    Torch's gets its bias outside, where it joins the kernel that reads the result, as Inductor has it too.
    """
    left = w.options.extern == "allow"
    spatial = weight.meta["val"].dim() - 2
    unbatched = x.meta["val"].dim() == spatial + 1
    if unbatched:
        x = w.call(aten.unsqueeze.default, x, 0)
    if not left and (out := sum_over_window(w, x, weight, bias, stride, padding, dilation, transposed)) is not None:
        return w.call(aten.squeeze.dim, out, 0) if unbatched else out
    name = ("torch_" if left else "") + ("conv_transpose" if transposed else "conv")
    window = (stride, padding, output_padding, dilation) if transposed else (stride, padding, dilation)
    extra = {} if left else {"allow_tf32": w.options.conv_tf32}
    out = w.template(name, x, weight, None if left else bias, *window, groups, **extra)
    if left and bias is not None:
        for _ in range(spatial):
            bias = w.call(aten.unsqueeze.default, bias, -1)
        out = w.call(aten.add.Tensor, out, bias)
    return w.call(aten.squeeze.dim, out, 0) if unbatched else out


def _adaptive(name: str) -> Callable[..., Node | None]:
    return lambda w, x, output_size: w.template(name, x, list(output_size))


def _sort(w: Editor, x: Node, dim: Any = -1, descending: bool = False, *, stable: bool | None = None) -> Node | None:
    placed = short_sorts.of_positions(w, x, dim, descending) if _row(x, dim) <= _LONGEST_SORT else None
    return placed or _ranked(w, x, dim, "sort", dim, descending)


def _topk(w: Editor, x: Node, k: Any, dim: int = -1, largest: bool = True, ordered: bool = True) -> Node | None:
    name = "topk_long" if isinstance(k, int) and k <= 1024 and _row(x, dim) > _LONGEST_SORT else "topk"
    return _ranked(w, x, dim, name, k, dim, largest)


_LONGEST_SORT = 4096


def _row(x: Node, dim: int) -> float:
    """How long a row is at the problem's own sizes."""
    value = x.meta["val"]
    length = value.shape[dim] if value.dim() else 1
    known: float | None = _hint(length)
    return math.inf if known is None else known


def _ranked(w: Editor, x: Node, dim: int, name: str, *args: Any) -> Node | None:
    serves = x.meta["val"].dtype not in (torch.float64, torch.int64) and (name == "topk_long" or _row(x, dim) <= _LONGEST_SORT)
    return w.template(name, x, *args) if serves else None


def _hint(size: Any) -> Any:
    return size if isinstance(size, int) else size.node.hint


def _as_strided(w: Editor, x: Node, size: Any, stride: Any, offset: Any = None) -> Node | None:
    """``as_strided`` that only gives a whole tensor another shape, as autograd writes gradients of views: a reshape."""
    if offset not in (None, 0) or not _all_of(x, w.node.meta["val"]):
        return None
    return w.call(aten.reshape.default, x, list(size))


def _as_strided_scatter(w: Editor, x: Node, source: Node, size: Any, stride: Any, offset: Any = None) -> Node | None:
    """What replaces a whole tensor needs nothing of it."""
    written = w.call(aten.as_strided.default, x, size, stride)
    if offset not in (None, 0) or not _all_of(x, written.meta["val"]):
        return None
    return w.call(aten.reshape.default, source, [w.size(x, d) for d in range(x.meta["val"].dim())])


def _all_of(x: Node, view: torch.Tensor) -> bool:
    """Whether a view from the first element on has all elements of a tensor in their order in memory."""
    value = x.meta["val"]
    dense = all(is_contiguous_or_false(t) for t in (value, view))
    return dense and bool(statically_known_true(view.numel() == value.numel()))


_RULES: dict[Any, Callable[..., Node | None]] = {
    aten.as_strided: _as_strided,
    aten.as_strided_scatter: _as_strided_scatter,
    aten.mm: _mm,
    aten._int_mm: lambda w, a, b: w.template("int8_matmul", a, b),
    aten.addmm: _addmm,
    aten.bmm: _bmm,
    aten.baddbmm: _addmm,
    aten.mv: _mv,
    aten.convolution: _convolution,
    aten.convolution_backward: replace_gradients,
    aten.avg_pool2d: avg_pool(2),
    aten.avg_pool3d: avg_pool(3),
    aten.max_pool2d_with_indices: max_pool(2),
    aten.max_pool3d_with_indices: max_pool(3),
    aten._adaptive_avg_pool2d: _adaptive("adaptive_avg_pool"),
    aten._adaptive_avg_pool3d: _adaptive("adaptive_avg_pool"),
    aten.adaptive_max_pool2d: _adaptive("adaptive_max_pool"),
    aten.adaptive_max_pool3d: _adaptive("adaptive_max_pool"),
    aten.sort: _sort,
    aten.topk: _topk,
    **scatter_rules.SUMS,
    **scatter_rules.EXTREMES,
}


_TORCH_RULES: dict[Any, Callable[..., Node | None]] = {aten.convolution: _convolution, **scatter_rules.SUMS}


__all__ = ["run"]
