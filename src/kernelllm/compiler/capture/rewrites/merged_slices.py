"""Neighbouring slices of one tensor that are stacked or concatenated again become one slice: ``torch.stack([first, *x])``.

A concatenation of hundreds of parts would be written, and compiled, part by part. What lies side by side in one tensor stays one part.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule, Node

from kernelllm.compiler import template_ops
from kernelllm.compiler.capture.graph_editor import Editor
from kernelllm.compiler.options import Options

aten = torch.ops.aten
_END = 2**63 - 1
_FEW = 4
"""Parts up to which a concatenation is a kernel that reads each of them where it lies."""


class _Part(NamedTuple):
    """The element ``at`` of ``source`` in its dimension ``dim``; ``apart``: it has a dimension of 1 where it is joined."""

    source: Node
    dim: int
    at: int
    apart: bool


def merge_slices(graph: GraphModule, options: Options) -> None:
    """Replace concatenations and stacks of neighbouring slices by one slice, in place."""
    changed = False
    for node in graph.graph.find_nodes(op="call_function", target=aten.cat.default):
        dim = int(node.args[1]) % node.meta["val"].dim() if len(node.args) > 1 else 0
        runs = _runs([(_part(given, dim), given) for given in node.args[0]])
        if any(len(run) > _FEW for _, run in runs):
            with graph.graph.inserting_before(node):
                edit = Editor(graph, node, template_ops.register(), options)
                joined = [one for part, run in runs for one in ([_whole(edit, part, len(run), dim)] if part and len(run) > _FEW else run)]
                made = joined[0] if len(joined) == 1 else edit.call(aten.cat.default, joined, dim)
            node.replace_all_uses_with(made)
            changed = True
    if changed:
        graph.graph.eliminate_dead_code()


def _part(node: Any, joined: int) -> _Part | None:
    apart = node.target is aten.unsqueeze.default and node.args[1] % node.meta["val"].dim() == joined
    inner = node.args[0] if apart else node
    if inner.target is operator.getitem and inner.args[0].target is aten.unbind.int:
        source, dim, at = inner.args[0].args[0], (*inner.args[0].args[1:], 0)[0], inner.args[1]
    elif inner.target is aten.select.int:
        source, dim, at = inner.args
    else:
        return None
    while source.target is aten.slice.Tensor and _takes_all(*source.args[2:]):  # ``z[:, 3]`` takes all rows first
        source = source.args[0]
    known = isinstance(at, int) and at >= 0
    return _Part(source, int(dim) % source.meta["val"].dim(), at, apart) if known else None


def _takes_all(start: Any = 0, end: Any = _END, step: Any = 1) -> bool:
    return start in (0, None) and end in (_END, None) and step == 1


def _runs(parts: list[tuple[_Part | None, Any]]) -> list[tuple[_Part | None, list[Any]]]:
    """Neighbours that follow each other, with the first of them."""
    runs: list[tuple[_Part | None, list[Any]]] = []
    for part, node in parts:
        first, run = runs[-1] if runs else (None, [])
        if first and part and part == first._replace(at=first.at + len(run)):
            run.append(node)
        else:
            runs.append((part, [node]))
    return runs


def _whole(edit: Editor, first: _Part, count: int, joined: int) -> Node:
    """``count`` elements from the first on, side by side in the dimension ``joined``."""
    taken = first.source
    if first.at or taken.meta["val"].shape[first.dim] != count:
        taken = edit.call(aten.slice.Tensor, taken, first.dim, first.at, first.at + count)
    order = [d for d in range(taken.meta["val"].dim()) if d != first.dim]
    order.insert(joined, first.dim)
    if order != sorted(order):
        taken = edit.call(aten.permute.default, taken, order)
    if first.apart:
        return taken
    sizes = [edit.size(taken, d) for d in range(taken.meta["val"].dim())]
    sizes[joined : joined + 2] = [edit.integer(operator.mul, count, sizes[joined + 1])]
    return edit.call(aten.reshape.default, taken, sizes)
