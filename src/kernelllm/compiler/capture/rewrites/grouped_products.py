"""Products of parts of the rows, each with its own matrix of one stack, become one grouped product of all rows.

``torch.cat([act(part @ w.T) for part, w in zip(x.split(counts), weights)])`` is what experts compute. The lengths of the parts are read off
a tensor, for which the host waits, and each part has kernels of its own. All parts together have the rows of ``x``, so that what is done
to each element, or to each row with that part's matrix, is done to ``x`` as a whole: no length need be known.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from kernelllm.compiler import template_ops
from kernelllm.compiler.capture.graph_editor import CONVERT, Editor
from kernelllm.compiler.capture.rewrites import expert_rows
from kernelllm.compiler.capture.rewrites.alike_parts import AlikeParts, AllRows, dim_of, hint, replace, stack_of
from kernelllm.compiler.options import Options

aten = torch.ops.aten


def join(graph: GraphModule, options: Options) -> None:
    """Rewrite, in place, all that is such a computation. Gradients and files to learn from keep the parts."""
    if options.backward or options.short:
        return
    splits = [n for n in graph.graph.nodes if n.target is aten.split_with_sizes.default]
    if splits:
        graph.graph.eliminate_dead_code()
    for split in splits:
        counts = _counts(split)
        parts = _parts(split, counts.meta["val"].shape[0]) if counts is not None else None
        if counts is not None and parts is not None:
            _write(graph, split, parts, counts, options)
    expert_rows.join(graph, options)


def _counts(split: Node) -> Node | None:
    """The vector of integers whose elements, in order, are the lengths of all parts; None for other splits.

    It may lack the last part, of the rows that the others leave.
    """
    lengths: Any = split.args[1]
    if dim_of(split) != 0 or not all(isinstance(n, Node) for n in lengths):
        return None
    *read, rest = lengths  # what the others leave of all rows
    rows: Any = split.args[0]
    if not read or not all(n.target is aten._local_scalar_dense.default for n in read):
        return None
    left = rows.meta["val"].shape[0] - sum(n.meta["val"] for n in read)
    vector = stack_of([n.args[0] for n in read])
    value = vector.meta["val"] if vector is not None and rest.meta["val"].node.expr == left.node.expr else None
    if value is None or value.dim() != 1 or value.is_floating_point():
        return None
    return vector if value.shape[0] in (len(lengths), len(read)) else None


def _parts(split: Node, count: int) -> AlikeParts | None:
    """None where the ``count`` parts are not all treated alike, or not all of them are joined again, in order."""
    by_place: dict[Any, Node] = {user.args[1]: user for user in split.users if user.target is operator.getitem}
    lengths: Any = split.args[1]
    if len(split.users) != count or by_place.keys() != set(range(count)):
        return None
    parts = AlikeParts({by_place[0]: [by_place[i] for i in range(count)]}, _joins)
    rows: Any = split.args[0]
    total = rows.meta["val"].shape[0]
    if not parts.followed() or parts.long(hint(total)):
        return None
    return parts if count == len(lengths) or _all_placed(_joined(parts), total) else None


def _joined(parts: AlikeParts) -> Node:
    return next(u for nodes in parts.same for u in nodes.users if _joins(parts, u))


def _all_placed(joined: Node, total: Any) -> bool:
    """Whether as many places are given for what is joined, ``new[order] = joined``: then no rows are left for a last part."""
    for put in [u for u in joined.users if u.target is aten.index_put.default and u.args[2] is joined]:
        at: Any = put.args[1]
        if len(at) == 1 and str(at[0].meta["val"].shape[0]) == str(total):
            return True
    return False


def _joins(parts: AlikeParts, node: Node) -> bool:
    if node.target is not aten.cat.default:
        return False
    dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    pieces: Any = node.args[0]
    return dim == 0 and parts.same.get(pieces[0]) == list(pieces)


def _write(graph: GraphModule, split: Node, parts: AlikeParts, counts: Node, options: Options) -> None:
    """What the parts are joined to, made of all rows."""
    rows: Any = split.args[0]
    first = next(iter(parts.same))
    joined = _joined(parts)
    pieces: Any = joined.args[0]
    with graph.graph.inserting_before(joined):
        edit = Editor(graph, joined, template_ops.register(), options)
        ends = edit.call(CONVERT, edit.call(aten.cumsum.default, counts, 0), torch.int32)
        made = AllRows(edit, parts, {first: rows}, ends, edit.size(rows, 0)).of_all()
    replace(graph, joined, made[pieces[0]])
