"""Matrix products that are bound by memory become sums of elementwise operators, which fuse with the operators around them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from kernelllm.compiler.capture.graph_editor import CONVERT, HALF, STORED, VIEWS, Editor, called, reads_memory
from kernelllm.compiler.capture.rewrites.stacked_steps import is_elementwise

aten = torch.ops.aten
_FEW = 8
"""Inductor writes sums of fewer terms out, so that no reduction is left."""
_SMALL = 64
"""Elements of a product of a row or a column, of which a batch has many."""
_THIN = 16
"""Rows or columns of a single product from which on the library multiplies them with tensor cores."""
_TERMS = 256
"""Terms up to which such a product joins the kernel that makes its larger operand, which then lies nowhere."""
_LONG = 1024
"""Rows from which on a product with one column keeps a GPU busy as a sum along each."""
_LOADS = 8
"""Loads from which on Inductor stores an elementwise result, be it broadcast from less."""
_MOVES = (
    *VIEWS, aten.expand.default, aten.permute.default, aten.clone.default, aten.unsqueeze.default, aten.slice.Tensor, aten.cat.default,
)  # fmt: skip
_MUCH = 2**28
"""Multiplications from which on rows that begin at multiples of 16 bytes are worth a copy of the operands."""


def by_shape(w: Editor, *args: Node) -> Node | None:
    """A product of fixed sizes by the kind that its shape is fastest as; None for the library's own kernels.

    ``args``: what is added, if anything, and the operands.
    """
    *bias, a, b = args
    sizes = (*a.meta["val"].shape, b.meta["val"].shape[-1])
    if not a.meta["val"].dtype.is_floating_point or not all(isinstance(n, int) for n in sizes):
        return None
    *batch, m, k, n = sizes
    if not bias and math.prod(batch) == 1 and 1 in (m, n) and k <= _TERMS and (out := _sum_in_place(w, a, b)) is not None:
        return out
    vectors = bool(batch) and 1 in (m, n) and (m * n <= _SMALL or (k <= _TERMS and _computed(b if m == 1 else a) and not _scores(w.node)))
    column = math.prod(batch) == 1 and n == 1 and m >= _LONG and a.meta["val"].stride(-1) == 1  # einsum makes batches of one
    if of_few_terms(w, a) or vectors or column:
        return as_sum(w, a, b, *bias)
    return _aligned(w, a, b, *bias)


def of_few_terms(w: Editor, a: Node) -> bool:
    """Whether the product of ``a`` sums so few terms that tensor cores would multiply zeros for the most part: rounded as fp32 is, too."""
    *batch, _, k = a.meta["val"].shape
    joins = bool(batch) or not all(map(reads_memory, w.node.users))
    return isinstance(k, int) and (k == 1 or (k < _FEW and joins))


def as_sum(w: Editor, a: Node, b: Node, bias: Node | None = None) -> Node:
    """A product as a sum, which joins the kernels around it: where there are few rows, columns or terms little is read twice."""
    kind = a.meta["val"].dtype
    sums, whole = torch.float32 if kind in HALF else kind, [_unmerged(a), _unmerged(b)]
    batch = [w.size(next(t for t in whole if t), d) for d in range(2)] if any(whole) else [w.size(a, 0)][: a.meta["val"].dim() - 2]
    # the larger operand is read as it is: a view of it would have to lie in memory
    parts = [t or (w.call(aten.reshape.default, u, [*batch, w.size(u, 1), w.size(u, 2)]) if any(whole) else u)
             for t, u in zip(whole, (a, b), strict=True)]  # fmt: skip
    _store_long(parts)
    left, right = (w.call(aten.unsqueeze.default, w.call(CONVERT, t, sums) if kind in HALF else t, len(batch) + d)
                   for t, d in zip(parts, (2, 0), strict=True))  # fmt: skip
    out = w.call(aten.sum.dim_IntList, w.call(aten.mul.Tensor, left, right), [len(batch) + 1])
    if bias is not None:
        out = w.call(aten.add.Tensor, out, w.call(CONVERT, bias, sums) if kind in HALF else bias)
    out = w.call(CONVERT, out, kind) if kind in HALF else out
    return w.call(aten.reshape.default, out, [w.size(a, 0), w.size(a, 1), w.size(b, 2)]) if any(whole) else out


def _store_long(operands: list[Node]) -> None:
    """Have an operand stored that is made of so many tensors (a rotation's halves, sines and cosines) that Inductor would store something
    for it: its terms, of which there are as many for each row or column of the other."""
    counts = {operand: _loads(operand) for operand in operands}
    for operand in sorted(counts, key=lambda one: -counts[one]):
        if sum(counts.values()) > _LOADS and counts[operand] > 2:
            operand.meta[STORED] = True
            counts[operand] = 1


def _loads(node: Node) -> int:
    """How many elements of memory an element of a result is made of, as far as that goes beyond :data:`_LOADS`."""
    if node.op != "call_function" or STORED in node.meta or not (is_elementwise(node.target) or node.target in _MOVES):
        return 1
    count = 0
    for source in node.all_input_nodes:
        count += _loads(source) if isinstance(source.meta.get("val"), torch.Tensor) and count <= _LOADS else 0
    return max(count, 1)


def _sum_in_place(w: Editor, a: Node, b: Node) -> Node | None:
    """A vector times a matrix that is a copy made for this, as a sum over the dimension where it lies: ``einsum("q,bqyx->byx", ...)``
    moves that dimension to the front or the end of all others."""
    vector, matrix, place = (a, b, 0) if a.meta["val"].shape[-2] == 1 else (b, a, -1)
    node, order = matrix, list[int]()
    while node.target in VIEWS:
        node = node.args[0]
    if node.target is not aten.clone.default:
        return None
    turned: Any = node.args[0]
    while turned.target is aten.permute.default:
        order = [turned.args[1][d] for d in order] if order else list(turned.args[1])
        turned = turned.args[0]
    rest = [d for d in order if d != order[place]]
    value = turned.meta["val"]
    if not order or rest != sorted(rest) or value.shape[order[place]] != vector.meta["val"].numel():
        return None
    kind, dim = value.dtype, order[place]
    weights = w.call(aten.reshape.default, vector, [-1 if d == dim else 1 for d in range(value.dim())])
    wide, weights = (w.call(CONVERT, t, torch.float32) if kind in HALF else t for t in (turned, weights))
    out = w.call(aten.sum.dim_IntList, w.call(aten.mul.Tensor, wide, weights), [dim])
    out = w.call(CONVERT, out, kind) if kind in HALF else out
    return w.call(aten.reshape.default, out, list(w.node.meta["val"].shape))


def _unmerged(node: Node) -> Node | None:
    """[b, h, m, n] where the node sees its first two dimensions as one."""
    source: Any = node
    if node.meta["val"].dim() != 3:
        return None
    while source.target in (aten.expand.default, *VIEWS) and source.meta["val"].dim() == 3:
        source = source.args[0]
    before, after = source.meta["val"].shape, node.meta["val"].shape
    fits = len(before) == 4 and [str(n) for n in before[2:]] == [str(n) for n in after[1:]]
    return source if fits and statically_known_true(before[0] * before[1] == after[0]) else None


def _computed(node: Any) -> bool:
    """Whether an elementwise kernel would write a matrix for nothing but a product."""
    while node.target in (*VIEWS, aten.expand.default, aten.permute.default, aten.clone.default):
        node = node.args[0]
    return is_elementwise(node.target)


def _scores(node: Node) -> bool:
    """Whether a softmax is taken of a product: attention is looked for later."""
    todo, seen = [node], {node}
    while todo:
        for user in todo.pop().users:
            if called(user) == "aten._softmax.default":
                return True
            if user not in seen and (user.target in VIEWS or is_elementwise(user.target)):
                seen.add(user)
                todo.append(user)
    return False


def leaves(node: Node) -> bool:
    """Whether the caller gets it, through views alone."""
    return any(u.op == "output" or (u.target in VIEWS and leaves(u)) for u in node.users)


def _aligned(w: Editor, a: Node, b: Node, bias: Node | None = None) -> Node | None:
    """Half-precision products with zeros behind terms, columns and rows, so that all rows in memory begin at multiples of 16 bytes.

    A single product only where an operand's do not; where the result's alone do not, nothing need be copied.
    """
    (*batch, m, k), n = a.meta["val"].shape, b.meta["val"].shape[-1]
    if a.meta["val"].dtype not in HALF or math.prod(batch) * m * n * k < _MUCH or min(m, n) < (_SMALL if batch else _THIN):
        return None
    turned = [not batch and t.meta["val"].stride(0) == 1 for t in (a, b)]  # columns lie along memory
    ends = (m if turned[0] else k, k if turned[1] else n)
    if not any(end % 8 for end in (ends if not batch else (k, n))):
        return None
    rows, terms, columns = (-m % 8 if turned[0] else 0), -k % 8, -n % 8
    last = leaves(w.node)
    if last and (batch or ((rows or columns) and m * n * _FEW > k * (m + n))):
        return None  # what the caller gets would be a copy
    left, right = _zeros_behind(w, a, rows, terms), _zeros_behind(w, b, terms, columns)
    joined = bias is not None and not columns and not rows
    out = w.call(aten.addmm.default, bias, left, right) if joined else w.call((aten.bmm if batch else aten.mm).default, left, right)
    out = w.call(aten.slice.Tensor, out, len(batch) + 1, 0, n) if columns else out
    out = w.call(aten.slice.Tensor, out, 0, 0, m) if rows else out
    out = w.call(aten.add.Tensor, out, bias) if bias is not None and not joined else out
    return w.call(aten.clone.default, out, memory_format=torch.contiguous_format) if last and (rows or columns) else out


def _zeros_behind(w: Editor, node: Node, rows: int, columns: int) -> Node:
    """A matrix, or each of a batch, with zeros below and to the right; a copy that another product reads serves this one too."""
    if not rows and not columns:
        return node
    if node.target is aten.permute.default and node.meta["val"].dim() == 2:
        return w.call(aten.permute.default, _zeros_behind(w, node.args[0], columns, rows), [1, 0])
    zeros = [0, columns, 0, rows] if rows else [0, columns]
    found = (u for u in node.users if u.target is aten.constant_pad_nd.default and list(u.args[1]) == zeros and len(u.args) == 2)
    return next(found, None) or w.call(aten.constant_pad_nd.default, node, zeros)
