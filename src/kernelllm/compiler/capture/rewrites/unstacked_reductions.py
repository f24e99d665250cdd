"""Reductions over a stack of few tensors, without the stack: elementwise operators on the tensors themselves.

    logsumexp(stack((a, b, c), -1), -1)       ->    m = maximum(maximum(a, b), c); log(exp(a - m) + exp(b - m) + exp(c - m)) + m

The stack need not lie in memory then, and what was three kernels is one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from kernelllm.compiler.capture.graph_editor import VIEWS, Editor
from kernelllm.compiler.capture.rewrites.stacked_steps import is_elementwise
from kernelllm.compiler.options import Options

aten = torch.ops.aten
_FEW = 8
"""Parts up to which a reduction is written out; Inductor does so for sums of fewer terms."""
_JOINED: dict[Any, Callable[..., Any]] = {
    aten.amax.default: aten.maximum.default, aten.amin.default: aten.minimum.default, aten.sum.dim_IntList: aten.add.Tensor,
    aten.mean.dim: aten.add.Tensor,
}  # fmt: skip
"""What two parts of a reduction are joined by."""


@dataclass
class _Stack:
    """Tensors that are seen as one, with a dimension of their own or of one each."""

    dim: int
    parts: list[Node]
    is_new: bool
    """Whether the parts do not have the dimension."""


def rewrite(graph: GraphModule, options: Options) -> None:
    """Replace reductions over a stack of few tensors by elementwise operators, in place."""
    stacks = _stacks(graph)
    for node in stacks:
        behind = _behind(node, stacks)
        if behind is not None:
            _take_apart(graph, node, stacks, behind, options)
    graph.graph.eliminate_dead_code()


def _stacks(graph: GraphModule) -> dict[Node, _Stack]:
    found = {}
    for node in graph.graph.find_nodes(op="call_function", target=aten.cat.default):
        parts, value = list(node.args[0]), node.meta["val"]
        dim = (node.args[1] if len(node.args) > 1 else 0) % max(value.dim(), 1)
        alike = all(p.meta["val"].dtype == value.dtype and p.meta["val"].dim() == value.dim() for p in parts)
        if not 1 < len(parts) <= _FEW or not alike:
            continue
        if all(_is_one(p, dim) for p in parts):
            found[node] = _Stack(dim, parts, is_new=False)
        else:
            views = [u for u in node.users if u.target in VIEWS and _is_stack(u, parts, dim)]
            found |= {view: _Stack(dim, parts, is_new=True) for view in views}
    return found


def _is_stack(view: Node, parts: list[Node], dim: int) -> bool:
    """Whether tensors that lie one behind the other along a dimension are seen as stacked in front of it."""
    sizes = [list(p.meta["val"].shape) for p in parts]
    wanted = [*sizes[0][:dim], len(parts), *sizes[0][dim:]]
    same = all(statically_known_true(a == b) for other in sizes for a, b in zip(other, sizes[0], strict=True))
    shape = view.meta["val"].shape
    return same and len(shape) == len(wanted) and all(statically_known_true(a == b) for a, b in zip(shape, wanted, strict=True))


def _is_one(node: Node, dim: int) -> bool:
    size = node.meta["val"].shape[dim]
    return isinstance(size, int) and size == 1


def _behind(stack: Node, stacks: dict[Node, _Stack]) -> list[Node] | None:
    """All that is computed of a stack, element by element, up to the reductions over its parts; None where something else reads it."""
    dim, count, rank = stacks[stack].dim, len(stacks[stack].parts), stack.meta["val"].dim()
    found, known, reduced = list[Node](), {stack}, False
    beside = {node for node, other in stacks.items() if (other.dim, len(other.parts), node.meta["val"].dim()) == (dim, count, rank)}
    for node in _after(stack):
        if not known & set(node.all_input_nodes):
            continue
        value = node.meta.get("val")
        if node.target in _JOINED:
            dims = node.args[1] if len(node.args) > 1 else None
            if not isinstance(dims, list | tuple) or [d % rank for d in dims] != [dim] or node.kwargs or not _same_kind(node):
                return None
            reduced = True
        elif node.target is aten._softmax.default:
            if node.args[1] % rank != dim or not _same_kind(node):
                return None
            known.add(node)
        elif node.op == "call_function" and is_elementwise(node.target) and isinstance(value, torch.Tensor) and value.dim() == rank:
            if not all(n in known or n in beside or _fits(n, dim, rank, count) for n in node.all_input_nodes):
                return None
            known.add(node)
        else:
            return None
        found.append(node)
    return found if reduced else None


def _after(stack: Node) -> list[Node]:
    nodes, node = [], stack.next
    while node.op != "root":
        nodes.append(node)
        node = node.next
    return nodes


def _same_kind(node: Node) -> bool:
    """Whether a reduction keeps the dtype: halves are summed in fp32, and rounded once."""
    before, after = node.args[0].meta["val"], node.meta["val"]
    return bool(before.dtype == after.dtype) and before.dtype in (torch.float32, torch.float64)


def _fits(node: Node, dim: int, rank: int, count: int) -> bool:
    """Whether another operand is the same for all parts, or has an element for each."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return True  # a size
    at = dim - (rank - value.dim())
    return at < 0 or _is_one(node, at) or bool(statically_known_true(value.shape[at] == count))


def _take_apart(graph: GraphModule, stack: Node, stacks: dict[Node, _Stack], behind: list[Node], options: Options) -> None:
    dim, count = stacks[stack].dim, len(stacks[stack].parts)
    apart: dict[Node, list[Node]] = {}
    for node in behind:
        with graph.graph.inserting_before(node):
            w = Editor(graph, node, None, options)
            for given in node.all_input_nodes:
                if given in stacks and given not in apart and stacks[given].dim == dim:
                    parts, is_new = stacks[given].parts, stacks[given].is_new
                    apart[given] = [w.call(aten.unsqueeze.default, p, dim) for p in parts] if is_new else parts
                elif given not in apart and (at := _place(given, dim, stack)) is not None:
                    apart[given] = [w.call(aten.slice.Tensor, given, at, i, i + 1) for i in range(count)]
            if node.target is aten._softmax.default:
                apart[node] = _softmax(w, apart[node.args[0]])
                continue
            if node.target not in _JOINED:
                apart[node] = [_part(w, node, apart, i) for i in range(count)]
                continue
            made = _joined(w, _JOINED[node.target], apart[node.args[0]])
            made = w.call(aten.div.Tensor, made, count) if node.target is aten.mean.dim else made
            keeps = len(node.args) > 2 and node.args[2]
            made = made if keeps else w.call(aten.squeeze.dim, made, dim)
        node.replace_all_uses_with(made)


def _place(node: Node, dim: int, stack: Node) -> int | None:
    """The dimension along which an operand has an element for each part."""
    value = node.meta.get("val")
    at = dim - (stack.meta["val"].dim() - value.dim()) if isinstance(value, torch.Tensor) else -1
    return at if at >= 0 and not _is_one(node, at) else None


def _joined(w: Editor, join: Any, parts: list[Node]) -> Node:
    return functools.reduce(lambda a, b: w.call(join, a, b), parts)


def _softmax(w: Editor, parts: list[Node]) -> list[Node]:
    top = _joined(w, aten.maximum.default, parts)
    weights = [w.call(aten.exp.default, w.call(aten.sub.Tensor, p, top)) for p in parts]
    total = _joined(w, aten.add.Tensor, weights)
    return [w.call(aten.div.Tensor, weight, total) for weight in weights]


def _part(w: Editor, node: Node, apart: dict[Node, list[Node]], number: int) -> Node:
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: apart[n][number] if n in apart else n)
    return w.call(node.target, *args, **kwargs)


__all__ = ["rewrite"]
