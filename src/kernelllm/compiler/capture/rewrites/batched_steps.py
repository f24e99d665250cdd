"""Steps of a loop that tracing has unrolled: what does not depend on the step before becomes one operator for all steps.

Chunked linear attention is such a loop: of the products of a step only those with the state need the step before. Steps that
are gathered at the loop's end, by ``torch.stack`` or into slices of a tensor, are computed there at once.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from kernelllm.compiler.capture.graph_editor import CONVERT, VIEWS
from kernelllm.compiler.capture.rewrites.stacked_steps import PRODUCTS, LoopSteps, is_elementwise, is_tensor, part_of, plain
from kernelllm.compiler.options import Options

aten = torch.ops.aten
_FEWEST = 4
"""Steps from which on a loop is looked at."""
_THROUGH = (*VIEWS, *PRODUCTS, aten.expand.default, aten.permute.default, aten.unsqueeze.default, aten.squeeze.dim, aten.clone.default,
            aten.select.int, aten.slice.Tensor)  # fmt: skip


def join(graph: GraphModule, options: Options) -> None:
    """Put the steps of loops side by side, in place."""
    _without_copies(graph)
    if sum(n.target in PRODUCTS for n in graph.graph.nodes) < _FEWEST:
        return
    _by_themselves(graph, options, products=True)
    _by_themselves(graph, options, products=False)
    _gathered(graph, options)


def _without_copies(graph: GraphModule) -> None:
    """Slices of a whole dimension as what they slice, and writing into a part of a tensor as the values that are written."""
    whole = [0, 2**63 - 1]
    for node in graph.graph.find_nodes(op="call_function", target=aten.alias.default):
        node.replace_all_uses_with(node.args[0], lambda user: user.op != "output")
    for node in graph.graph.find_nodes(op="call_function", target=aten.slice.Tensor):
        if list(node.args[2:]) == whole:
            _put(node, node.args[0])
    for node in graph.graph.find_nodes(op="call_function", target=aten.slice_scatter.default):
        if list(node.args[3:]) == whole:
            _put(node, node.args[1])
    for node in graph.graph.find_nodes(op="call_function", target=aten.copy.default):
        source = node.args[1]
        if plain([*source.meta["val"].shape]) != plain([*node.meta["val"].shape]) or len(node.args) > 2:
            continue
        if source.meta["val"].dtype != node.meta["val"].dtype:
            with graph.graph.inserting_before(node):
                converted = graph.graph.call_function(CONVERT, (source, node.meta["val"].dtype))
            converted.meta, source = dict(node.meta), converted
        _put(node, source)


def _put(node: Node, value: Any) -> None:
    node.replace_all_uses_with(value)
    node.graph.erase_node(node)


class _Forms:
    """What nodes compute, as a number that is the same for all steps of a loop."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._of: dict[Node, tuple[int, bool]] = {}

    def of(self, node: Node) -> tuple[int, bool]:
        """The number, and whether the node differs between steps. Nodes are asked for in their order."""
        if node not in self._of:
            form, differs = self._form(node)
            self._of[node] = self._numbers.setdefault(form, len(self._numbers)), differs
        return self._of[node]

    def _form(self, node: Node) -> tuple[Any, bool]:
        if found := part_of(node):
            return found[0], True
        target: Any = node.target
        alone: tuple[Any, bool] = node, False
        creates = node.op == "call_function" and not any(map(is_tensor, node.all_input_nodes)) and isinstance(target, torch._ops.OpOverload)
        if not (creates or target in _THROUGH or is_elementwise(target)):
            return alone
        given = [self.of(a) if isinstance(a, Node) and is_tensor(a) else (plain(a), False) for a in node.args]
        texts = (*(text for text, _ in given), plain(node.kwargs))
        if None in texts or torch.Tag.nondeterministic_seeded in target.tags:
            return alone
        return (target, texts), any(differs for _, differs in given)


def _by_themselves(graph: GraphModule, options: Options, *, products: bool) -> None:
    """Products that no step needs another for, or what the other products read that is such, computed ahead of the loop."""
    forms, groups, steps = _Forms(), dict[int, list[Node]](), LoopSteps(graph, options)
    for node in graph.graph.nodes:
        number, differs = forms.of(node)
        if differs:
            groups.setdefault(number, []).append(node)
    read = {_computed(a) for n in graph.graph.nodes if n.target in PRODUCTS for a in n.all_input_nodes}
    for members in groups.values():
        first = members[0]
        wanted = first.target in PRODUCTS if products else first in read and is_elementwise(first.target)
        if not wanted or len(members) < _FEWEST or (not products and not all(m in read for m in members)):
            continue
        with graph.graph.inserting_before(first):
            whole = steps.stacked(tuple(members))
            if whole is None:  # the steps of a backward are the last ones first
                members.reverse()
                whole = steps.stacked(tuple(members))
            if whole is None or not whole[1]:
                continue
            for at, member in enumerate(members):
                part = graph.graph.call_function(aten.select.int, (whole[0], 0, at))
                part.meta = dict(member.meta) | {"val": whole[0].meta["val"].select(0, at)}
                member.replace_all_uses_with(part)
    graph.graph.eliminate_dead_code()


def _computed(node: Any) -> Any:
    while node.target in (*VIEWS, aten.expand.default, aten.permute.default, aten.clone.default):
        node = node.args[0]
    return node


def _gathered(graph: GraphModule, options: Options) -> None:
    """Results of all steps that lie side by side in one tensor."""
    steps = LoopSteps(graph, options)
    for node in list(graph.graph.nodes):
        found = _parts_of(node)
        if found is None or len(found[0]) < _FEWEST or not node.users:
            continue
        parts, dim, new = found
        with graph.graph.inserting_before(node):
            whole = steps.stacked(tuple(parts))
            if whole is None or not whole[1]:
                continue
            order = [*range(1, dim + 1), 0, *range(dim + 1, parts[0].meta["val"].dim() + 1)]
            out = steps.call(node, aten.permute.default, whole[0], order)
            if not new:
                edit = steps.editor(node)
                sizes = [edit.size(parts[0], d) for d in range(parts[0].meta["val"].dim())]
                sizes[dim] = edit.integer(operator.mul, sizes[dim], len(parts))
                out = steps.call(node, aten.reshape.default, out, sizes)
        node.replace_all_uses_with(out)
    graph.graph.eliminate_dead_code()


def _parts_of(node: Any) -> tuple[list[Node], int, bool] | None:
    """Tensors of one shape that a tensor is made of, along which dimension, and whether that is their place alone."""
    if node.target is aten.cat.default:
        parts: Any = node.args[0]
        dim = (node.args[1] if len(node.args) > 1 else 0) % node.meta["val"].dim()
        shapes = {str(tuple(p.meta["val"].shape)) for p in parts}
        alike = len(shapes) == 1 and len({p.meta["val"].dtype for p in parts}) == 1
        return (list(parts), dim, False) if alike else None
    if node.target is aten.add.Tensor:
        return _added(node)
    if node.target is not aten.select_scatter.default or any(u.target is node.target and u.args[0] is node for u in node.users):
        return None
    value, found = node.meta["val"], dict[int, Node]()
    at: Any = node
    dim = node.args[2] % value.dim()
    length = value.shape[dim]
    while isinstance(length, int) and at.target is node.target and at.args[2] % value.dim() == dim:
        found.setdefault(at.args[3] % length, at.args[1])
        at = at.args[0]
    whole = len(found) == length
    return ([found[i] for i in range(len(found))], dim, True) if whole else None


def _added(node: Any) -> tuple[list[Node], int, bool] | None:
    """The parts of a tensor that autograd adds, as gradients of what was read in parts: zeros but for one part each."""
    value, found, todo = node.meta["val"], dict[int, Node](), [node]
    dims: set[int] = set()
    while todo:
        at = todo.pop()
        if at.target is aten.add.Tensor and not at.kwargs and all(map(is_tensor, at.args)) and (at is node or len(at.users) == 1):
            todo += at.args
            continue
        if at.target is not aten.select_scatter.default or at.args[0].target is not aten.full.default or at.args[0].args[1] != 0:
            return None
        dims.add(at.args[2] % value.dim())
        length = value.shape[min(dims)]
        if len(dims) > 1 or not isinstance(length, int) or at.args[3] % length in found:
            return None
        found[at.args[3] % length] = at.args[1]
    return ([found[i] for i in range(length)], min(dims), True) if len(found) == length else None


__all__ = ["join"]
