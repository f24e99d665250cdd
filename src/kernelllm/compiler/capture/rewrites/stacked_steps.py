"""Steps of an unrolled loop as one operator, with the steps as its first dimension: how :mod:`batched_steps` builds it."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils._pytree import tree_leaves, tree_map

from kernelllm.compiler import template_ops
from kernelllm.compiler.capture.graph_editor import CONVERT, VIEWS, Editor
from kernelllm.compiler.options import Options

aten = torch.ops.aten
Stacked = tuple[Node, bool] | None
"""A node and whether it has the steps as its first dimension (False: all steps have it alike); None where there is none."""
PRODUCTS = (aten.mm.default, aten.bmm.default, aten.addmm.default)
_ALONG = (aten.sum.dim_IntList, aten.mean.dim, aten.amax.default, aten.amin.default, aten.cumsum.default, aten.squeeze.dims)
_LARGE = 2**22
"""Elements of a product from which on its launch costs nothing beside it."""


def is_elementwise(target: Any) -> bool:
    """Whether an operator computes each element from those at its place."""
    return target is CONVERT or (isinstance(target, torch._ops.OpOverload) and torch.Tag.pointwise in target.tags)


def part_of(node: Node) -> tuple[tuple[Any, ...], int] | None:
    """The tensor that a node is a step's part of, with the dimension and the part's length (0: the dimension goes), and where it begins."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or node.op != "call_function":
        return None
    if node.target is aten.select.int and isinstance(node.args[2], int):
        base, dim, at = node.args
        return (base, _dim(base, dim), 0), _from_begin(base, dim, at)
    if node.target is aten.slice.Tensor and len(node.args) == 4 and all(isinstance(n, int) for n in node.args[1:]):
        base, dim, start, _ = node.args
        length = value.shape[dim]
        return ((base, _dim(base, dim), length), _from_begin(base, dim, start)) if isinstance(length, int) and length else None
    source = node.args[0] if node.target is operator.getitem else None
    if isinstance(source, Node) and source.target in (aten.split.Tensor, aten.split_with_sizes.default):
        base, lengths, *given = source.args
        dim, length = _dim(base, given[0] if given else 0), lengths[0] if isinstance(lengths, list) else lengths
        alike = isinstance(length, int) and all(statically_known_true(v.shape[dim] == length) for v in source.meta["val"])
        return ((base, dim, length), node.args[1] * length) if alike else None
    if isinstance(source, Node) and source.target is aten.unbind.int:
        base, *given = source.args
        return (base, _dim(base, given[0] if given else 0), 0), node.args[1]
    return None


def is_tensor(value: Any) -> bool:
    """Whether an argument is a tensor's node."""
    return isinstance(value, Node) and isinstance(value.meta.get("val"), torch.Tensor)


def plain(value: Any) -> str | None:
    """The text of an argument that is no tensor, with sizes by their values; None for one with tensors in it."""
    found = tree_leaves(value)
    if any(map(is_tensor, found)):
        return None
    return str(tree_map(lambda v: str(v.meta.get("val")) if isinstance(v, Node) else str(v), value))


def _dim(node: Any, dim: int) -> int:
    return int(dim % node.meta["val"].dim())


def _from_begin(base: Any, dim: int, at: int) -> int:
    size: Any = base.meta["val"].shape[dim]
    return int(at + size) if at < 0 and isinstance(size, int) else at


class LoopSteps:
    """Stacks what the steps of a loop compute; new nodes stand before ``self.at``."""

    def __init__(self, graph: GraphModule, options: Options) -> None:
        self.graph, self.options, self.namespace = graph, options, template_ops.register()
        self._before: dict[Node, int] = {}
        self._place: dict[Node, int] = {}
        self._known: dict[tuple[Node, ...], Stacked] = {}
        for node in graph.graph.nodes:
            self._place[node] = 1 << len(self._place)
            self._before[node] = 0
            for source in node.all_input_nodes:
                self._before[node] |= self._before[source] | self._place[source]

    def stacked(self, nodes: tuple[Node, ...]) -> Stacked:
        """What the nodes of all steps are."""
        if all(n is nodes[0] for n in nodes):
            return nodes[0], False
        if nodes not in self._known:
            self._known[nodes] = None  # where it leads back to itself
            self._known[nodes] = self._parts(nodes) or self._alike(nodes)
        return self._known[nodes]

    def editor(self, like: Node) -> Editor:
        """For operators that are told as part of what ``like`` is a part of."""
        return Editor(self.graph, like, self.namespace, self.options)

    def call(self, like: Node, target: Any, *args: Any, **kwargs: Any) -> Node:
        """A node of ``target``, told as part of what ``like`` is a part of."""
        return self.editor(like).call(target, *args, **kwargs)

    def _parts(self, nodes: tuple[Node, ...]) -> Stacked:
        """Parts of one tensor that follow each other."""
        found = [f for f in map(part_of, nodes) if f is not None]
        count, like = len(nodes), nodes[0]
        if len(found) < count or len({f[0] for f in found}) > 1:
            return None
        (base, dim, length), start = found[0]
        apart = found[1][1] - start
        if apart < 1 or [at for _, at in found] != [start + i * apart for i in range(count)] or (length and apart != length):
            return None
        end = start + (count - 1) * apart + max(length, 1)
        if start or apart > max(length, 1) or str(end) != _sizes(base)[dim]:
            base = self.call(like, aten.slice.Tensor, base, dim, start, end, 1 if length else apart)
        if length:
            edit = self.editor(like)
            sizes = [edit.size(base, d) for d in range(base.meta["val"].dim())]
            base = self.call(like, aten.reshape.default, base, [*sizes[:dim], count, length, *sizes[dim + 1 :]])
        rest = [d for d in range(base.meta["val"].dim()) if d != dim]
        return self.call(like, aten.permute.default, base, [dim, *rest]) if dim else base, True

    def _alike(self, nodes: tuple[Node, ...]) -> Stacked:
        """The same operator on stacked arguments."""
        first = self._first(nodes)
        if any(n.op != "call_function" or n.target is not first.target or len(n.args) != len(first.args) for n in nodes):
            return None
        tags = getattr(first.target, "tags", ())
        if not isinstance(first.meta.get("val"), torch.Tensor) or torch.Tag.nondeterministic_seeded in tags or not self._apart(nodes):
            return None
        if any(plain(n.kwargs) != plain(first.kwargs) or _sizes(n) != _sizes(first) for n in nodes):
            return None
        args: list[Any] = []
        for given in zip(*(n.args for n in nodes), strict=True):
            tensors = all(map(is_tensor, given))
            args.append(self.stacked(given) if tensors else first.args[len(args)])
            if not tensors and (plain(given[0]) is None or any(plain(g) != plain(given[0]) for g in given)):
                return None
        values = [a for a, given in zip(args, first.args, strict=True) if is_tensor(given)]
        if first.target in PRODUCTS:
            return self._product(nodes, args)
        if any(v is None for v in values if not isinstance(v, Node)):
            return None
        if not any(v[1] for v in values if isinstance(v, tuple)):
            return (first, False) if isinstance(first.target, torch._ops.OpOverload) and not first.target._schema.is_mutable else None
        return self._operator(first, args, len(nodes))

    def _first(self, nodes: tuple[Node, ...]) -> Node:
        """The node that stands first in the graph: what it reads is there for new nodes."""
        return min(nodes, key=lambda n: self._place.get(n, 0))

    def _apart(self, nodes: tuple[Node, ...]) -> bool:
        """Whether no step needs another's result."""
        before = places = 0
        for node in nodes:
            before |= self._before.get(node, 0)
            places |= self._place.get(node, 0)
        return not before & places

    def _operator(self, first: Node, args: list[Any], count: int) -> Stacked:
        target: Any = first.target
        rank = first.meta["val"].dim()
        if is_elementwise(target):
            ranked = [self._ranked(a, g, rank) for a, g in zip(args, first.args, strict=True)]
            return self.call(first, target, *ranked, **first.kwargs), True
        if not isinstance(args[0], tuple) or not args[0][1] or any(isinstance(a, tuple) for a in args[1:]):
            return None
        given: Any = first.args[0]
        x, own = args[0][0], given.meta["val"].dim()
        if target is aten.clone.default:
            return x, True
        if target in VIEWS:
            return self.call(first, aten.reshape.default, x, [count, *args[1]]), True
        if target is aten.expand.default:
            return self.call(first, target, self._ranked(args[0], first.args[0], rank), [count, *args[1]]), True
        if target is aten.permute.default:
            return self.call(first, target, x, [0, *(d % own + 1 for d in args[1])]), True
        if target is aten.unsqueeze.default:
            return self.call(first, target, x, args[1] % (own + 1) + 1), True
        if target in (aten.select.int, aten.slice.Tensor, aten.squeeze.dim):
            return self.call(first, target, x, (args[1] if len(args) > 1 else 0) % own + 1, *args[2:]), True
        if target in _ALONG and own:
            dims = args[1] if len(args) > 1 else None
            moved = dims % own + 1 if isinstance(dims, int) else [d % own + 1 for d in dims or range(own)]
            return self.call(first, target, x, moved, *args[2:], **first.kwargs), True
        return None

    def _ranked(self, value: Any, given: Any, rank: int) -> Any:
        """An argument that broadcasts with the others: dimensions of size one behind the steps."""
        if not isinstance(value, tuple):
            return value
        node, has_steps = value
        for _ in range(rank - given.meta["val"].dim() if has_steps else 0):
            node = self.call(node, aten.unsqueeze.default, node, 1)
        return node

    def _product(self, nodes: tuple[Node, ...], args: list[Any]) -> Stacked:
        first = self._first(nodes)
        edit = self.editor(first)
        if first.kwargs or _hint(first.meta["val"].numel()) > _LARGE:
            return None
        if first.target is aten.bmm.default:
            return self._batched(nodes, args)
        *bias, left, right = args
        if None in (left, right, *bias) or any(b[1] for b in bias):
            return None
        if left[1] and not right[1]:  # the rows of all steps
            given: Any = first.args[-2:]
            rows = self.call(first, aten.reshape.default, left[0], [-1, edit.size(given[0], 1)])
            out = self.call(first, first.target, *(b[0] for b in bias), rows, right[0])
            return self.call(first, aten.view.default, out, [len(nodes), edit.size(given[0], 0), edit.size(given[1], 1)]), True
        return (self.call(first, aten.bmm.default, left[0], right[0]), True) if left[1] and right[1] and not bias else None

    def _batched(self, nodes: tuple[Node, ...], args: list[Any]) -> Stacked:
        """Batches of all steps as one. The steps go before or behind the batch, as the operands lie in memory."""
        first, count = self._first(nodes), len(nodes)
        edit = self.editor(first)
        known = [a for a in args if a is not None]
        if not known or not all(k[1] for k in known):
            return None
        given: Any = first.args
        batch, rows, columns = edit.size(given[0], 0), edit.size(given[0], 1), edit.size(given[1], 2)
        behind = all(_merges(k[0], 1, 0) for k in known) and not all(_merges(k[0], 0, 1) for k in known)
        merged = edit.integer(operator.mul, count, batch)
        operands = []
        for at, value in enumerate(args):
            if value is None:  # each step needs the step before: their results are put side by side
                parts = [self.call(first, aten.unsqueeze.default, n.args[at], int(behind)) for n in nodes]
                whole = self.call(first, aten.cat.default, parts, int(behind))
            else:
                whole = self._turned(first, value[0], behind)
            operands.append(self.call(first, aten.reshape.default, whole, [merged, edit.size(given[at], 1), edit.size(given[at], 2)]))
        out = self.call(first, aten.bmm.default, *operands)
        split = [batch, count] if behind else [count, batch]
        return self._turned(first, self.call(first, aten.view.default, out, [*split, rows, columns]), behind), True

    def _turned(self, like: Node, node: Node, behind: bool) -> Node:
        return self.call(like, aten.permute.default, node, [1, 0, 2, 3]) if behind else node


def _sizes(node: Node) -> list[str]:
    return [str(n) for n in node.meta["val"].shape]


def _hint(size: Any) -> int:
    return size if isinstance(size, int) else int(size.node.hint or 0)


def _merges(node: Node, outer: int, inner: int) -> bool:
    """Whether two dimensions lie in memory like one, in this order."""
    value = node.meta["val"]
    return bool(statically_known_true(value.stride(outer) == value.shape[inner] * value.stride(inner)))
