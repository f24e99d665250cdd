"""Parts of rows, each with a matrix of its own out of one stack, as one product of all rows.

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
from kernelllm.compiler.capture import found_rows
from kernelllm.compiler.capture.alike_parts import AlikeParts, AllRows, dim_of, hint, replace, stack_of
from kernelllm.compiler.capture.graph_editor import CONVERT, Editor
from kernelllm.compiler.options import Options

aten = torch.ops.aten


def join(graph: GraphModule, options: Options) -> None:
    """Rewrite, in place, all that is such a computation. Gradients and files to learn from keep the parts."""
    if options.backward or options.short:
        return
    for split in [n for n in graph.graph.nodes if n.target is aten.split_with_sizes.default]:
        counts = _counts(split)
        parts = _parts(split) if counts is not None else None
        if counts is not None and parts is not None:
            _write(graph, split, parts, counts, options)
    found_rows.join(graph, options)


def _counts(split: Node) -> Node | None:
    """The vector of integers whose elements, in order, are the lengths of all parts; None for other splits."""
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
    return vector if value is not None and value.dim() == 1 and not value.is_floating_point() and value.shape[0] == len(lengths) else None


def _parts(split: Node) -> AlikeParts | None:
    """None where the parts are not all treated alike, or not all of them are joined again, in order."""
    by_place: dict[Any, Node] = {user.args[1]: user for user in split.users if user.target is operator.getitem}
    lengths: Any = split.args[1]
    if len(split.users) != len(lengths) or by_place.keys() != set(range(len(lengths))):
        return None
    parts = AlikeParts({by_place[0]: [by_place[i] for i in range(len(lengths))]}, _joins)
    rows: Any = split.args[0]
    return parts if parts.followed() and not parts.long(hint(rows.meta["val"].shape[0])) else None


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
    joined = next(u for nodes in parts.same for u in nodes.users if _joins(parts, u))
    pieces: Any = joined.args[0]
    with graph.graph.inserting_before(joined):
        edit = Editor(graph, joined, template_ops.register(), options)
        ends = edit.call(CONVERT, edit.call(aten.cumsum.default, counts, 0), torch.int32)
        made = AllRows(edit, parts, {first: rows}, ends, edit.size(rows, 0)).of_all()
    replace(graph, joined, made[pieces[0]])
