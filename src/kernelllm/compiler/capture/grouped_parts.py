"""Parts of rows, each with a matrix of its own out of one stack, as one product of all rows.

``torch.cat([act(part @ w.T) for part, w in zip(x.split(counts), weights)])`` is what experts compute. The lengths of the parts are read off
a tensor, for which the host waits, and each part has kernels of its own. All parts together have the rows of ``x``, so that what is done
to each element, or to each row with that part's matrix, is done to ``x`` as a whole: no length need be known.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from kernelllm.compiler import template_ops
from kernelllm.compiler.capture.graph_editor import CONVERT, Editor
from kernelllm.compiler.options import Options

aten = torch.ops.aten
_ALONG = {aten.split.Tensor: 2, aten.split_with_sizes.default: 2, aten.slice.Tensor: 1}
"""Operators that take a tensor apart, to the position of the dimension among their arguments."""
_PRODUCTS = (aten.mm.default, aten.addmm.default)
_TURNS = (aten.permute.default, aten.t.default, aten.transpose.int)
_SAME = (aten.alias.default, aten.view.default, aten.clone.default)
_CHECKS = ("aten._assert_scalar", "aten.sym_constrain_range")


def join(graph: GraphModule, options: Options) -> None:
    """Rewrite, in place, all that is such a computation. Gradients and files to learn from keep the parts."""
    if options.backward or options.short:
        return
    for split in [n for n in graph.graph.nodes if n.target is aten.split_with_sizes.default]:
        counts = _counts(split)
        parts = _Parts.of(split) if counts is not None else None
        if counts is not None and parts is not None:
            _write(graph, parts, counts, options)


def _counts(split: Node) -> Node | None:
    """The vector of integers whose elements, in order, are the lengths of all parts; None for other splits."""
    lengths: Any = split.args[1]
    if _dim(split) != 0 or not all(isinstance(n, Node) for n in lengths):
        return None
    *read, rest = lengths  # what the others leave of all rows
    rows: Any = split.args[0]
    if not read or not all(n.target is aten._local_scalar_dense.default for n in read):
        return None
    left = rows.meta["val"].shape[0] - sum(n.meta["val"] for n in read)
    vector = _stack([n.args[0] for n in read])
    value = vector.meta["val"] if vector is not None and rest.meta["val"].node.expr == left.node.expr else None
    return vector if value is not None and value.dim() == 1 and not value.is_floating_point() and value.shape[0] == len(lengths) else None


def _dim(node: Node) -> Any:
    place = _ALONG[node.target]
    return node.args[place] if len(node.args) > place else node.kwargs.get("dim", 0)


def _element(node: Any) -> tuple[Node, int] | None:
    """The tensor whose element along its first dimension this is, and which."""
    while isinstance(node, Node) and node.target in _SAME:
        node = node.args[0]
    if isinstance(node, Node) and node.target is aten.select.int and node.args[1] == 0 and isinstance(node.args[2], int):
        return node.args[0], node.args[2]
    if isinstance(node, Node) and node.target is operator.getitem:
        unbound: Any = node.args[0]
        if unbound.target is aten.unbind.int and (*unbound.args[1:], 0)[0] == 0:
            return unbound.args[0], node.args[1]
    return None


def _stack(nodes: list[Any]) -> Node | None:
    """The tensor whose elements, in order, these are."""
    held = [_element(node) for node in nodes]
    if held[0] is None or any(one != (held[0][0], i) for i, one in enumerate(held)):
        return None
    return held[0][0]


@dataclass(frozen=True)
class _Own:
    """An operand that each part has one of its own of: elements of ``stack``, transposed where ``turned``."""

    stack: Node
    turned: bool


def _own(nodes: list[Any]) -> _Own | None:
    turned = False
    while all(isinstance(n, Node) and n.target in _TURNS and n.meta["val"].dim() == 2 for n in nodes):
        if any(n.target is aten.permute.default and tuple(n.args[1]) != (1, 0) for n in nodes):
            return None
        nodes, turned = [n.args[0] for n in nodes], not turned
    stack = _stack(nodes)
    return _Own(stack, turned) if stack is not None and stack.meta["val"].shape[0] == len(nodes) else None


@dataclass
class _Parts:
    """What is computed of the parts, found for all of them side by side."""

    same: dict[Node, list[Node]] = field(default_factory=dict)
    """What is made of the first part, in the graph's order, to the same of each part."""
    own: dict[Node, _Own] = field(default_factory=dict)
    """Operands of the first part's operators that the others have their own of."""
    joined: Node | None = None

    @classmethod
    def of(cls, split: Node) -> _Parts | None:
        """None where the parts are not all treated alike, or not all of them are joined again, in order."""
        by_place = {user.args[1]: user for user in split.users}
        count = len(split.args[1])
        if len(split.users) != count or by_place.keys() != set(range(count)):
            return None
        parts = cls({by_place[0]: [by_place[i] for i in range(count)]})
        behind = {by_place[0]}
        node = by_place[0].next
        while node.op != "output":
            made = any(n in behind for n in node.all_input_nodes)
            if made and parts.joined is not node:
                if node.target is aten.cat.default and parts._ends_in(node):
                    node = node.next
                    continue
                if not parts._found(node):
                    return None
                behind.add(node)
            node = node.next
        read_elsewhere = any(user not in behind and user is not parts.joined for node in behind for user in node.users)
        return parts if parts.joined is not None and not read_elsewhere else None

    def _ends_in(self, cat: Node) -> bool:
        dim = cat.args[1] if len(cat.args) > 1 else cat.kwargs.get("dim", 0)
        pieces: Any = cat.args[0]
        if self.joined is not None or dim != 0 or self.same.get(pieces[0]) != list(pieces):
            return False
        self.joined = cat
        return True

    def _found(self, first: Node) -> bool:
        """Note what is made of the other parts as ``first`` is made of the first one; False where it is not, or not row by row."""
        if not (_elementwise(first) or _of_columns(first) or _product(first, self.same)):
            return False
        known = next(n for n in first.all_input_nodes if n in self.same)
        every = [first]
        for place in range(1, len(self.same[known])):
            like = [u for u in self.same[known][place].users if u.target is first.target and self._alike(first, u, place)]
            if len(like) != 1:
                return False
            every += like
        self.same[first] = every
        return all(self._known(number, operand, every) for number, operand in enumerate(first.all_input_nodes))

    def _alike(self, first: Node, other: Node, place: int) -> bool:
        mine, its = (pytree.tree_leaves((node.args, node.kwargs)) for node in (first, other))
        return len(mine) == len(its) and all(
            self.same[a][place] is b if a in self.same else isinstance(b, Node) if isinstance(a, Node) else a == b
            for a, b in zip(mine, its, strict=True)
        )

    def _known(self, number: int, operand: Node, every: list[Node]) -> bool:
        """Whether an operand is a part's, is shared by all, or is one that each part has its own of."""
        others = [node.all_input_nodes[number] for node in every]
        if operand in self.same or all(other is operand for other in others):
            return True
        own = _own(others)
        if own is None:
            return False
        self.own[operand] = own
        matrix = every[0].target in _PRODUCTS and every[0].args[-1] is operand
        return matrix or (not own.turned and operand.meta["val"].dim() <= 1)


def _elementwise(node: Node) -> bool:
    return node.target is CONVERT or torch.Tag.pointwise in getattr(node.target, "tags", ())


def _of_columns(node: Node) -> bool:
    return node.target is operator.getitem or (node.target in _ALONG and _dim(node) in (1, -1))


def _product(node: Node, parts: dict[Node, list[Node]]) -> bool:
    return node.target in _PRODUCTS and not node.kwargs and node.args[-2] in parts and node.args[-1] not in parts


def _write(graph: GraphModule, parts: _Parts, counts: Node, options: Options) -> None:
    """What the parts are joined to, made of all rows."""
    first, *others = parts.same
    rows: Any = first.args[0]
    assert parts.joined is not None
    last = parts.joined.args[0][0]
    with graph.graph.inserting_before(parts.joined):
        whole = _Whole(Editor(graph, parts.joined, template_ops.register(), options), parts, counts, rows.args[0])
        made = {first: rows.args[0]}
        for node in others:
            made[node] = whole.of(node, made)
    parts.joined.replace_all_uses_with(made[last])
    for node in reversed(list(graph.graph.nodes)):
        checks = str(node.target).startswith(_CHECKS)
        if checks or (node.op == "call_function" and not node.users and (not node.is_impure() or "_local_scalar" in str(node.target))):
            graph.graph.erase_node(node)
    _propagate(graph, made[last])


class _Whole:
    """Operators on all rows."""

    def __init__(self, edit: Editor, parts: _Parts, counts: Node, rows: Node) -> None:
        self._edit, self._parts, self._rows = edit, parts, rows
        self._count = counts.meta["val"].shape[0]
        self._ends = edit.call(CONVERT, edit.call(aten.cumsum.default, counts, 0), torch.int32)
        self._part: Node | None = None

    def of(self, first: Node, made: dict[Node, Node]) -> Node:
        """What is to all rows as ``first`` is to the first part's."""
        matrix = self._parts.own.get(first.args[-1]) if first.target in _PRODUCTS else None
        if matrix is not None:
            stack = self._edit.call(aten.permute.default, matrix.stack, [0, 2, 1]) if matrix.turned else matrix.stack
            product = self._edit.template(
                "grouped_matmul", made[first.args[-2]], stack, self._ends, allow_tf32=self._edit.options.matmul_tf32
            )
            bias: Any = first.args[0]
            return self._edit.call(aten.add.Tensor, product, self._operand(bias)) if first.target is aten.addmm.default else product
        args, kwargs = map_arg((first.args, first.kwargs), lambda node: made[node] if node in made else self._operand(node))
        return self._edit.call(first.target, *args, **kwargs)

    def _operand(self, operand: Node) -> Node:
        """What is no part: as it is where all share it, otherwise each row's own."""
        own = self._parts.own.get(operand)
        if own is None:
            return operand
        if self._part is None:  # of each row; rows behind the last part have zeros, and any will do
            how = {"dtype": torch.int32, "device": self._rows.meta["val"].device, "requires_grad": False}
            place = self._edit.call(torch.ops.prims.iota.default, self._edit.size(self._rows, 0), start=0, step=1, **how)
            behind = self._edit.call(aten.ge.Tensor, self._edit.call(aten.unsqueeze.default, place, 1), self._ends)
            self._part = self._edit.call(aten.clamp_max.default, self._edit.call(aten.sum.dim_IntList, behind, [1]), self._count - 1)
        found = self._edit.call(aten.index.Tensor, own.stack, [self._part])
        return found if operand.meta["val"].dim() else self._edit.call(aten.unsqueeze.default, found, 1)


def _propagate(graph: GraphModule, changed: Node) -> None:
    """Example values of what is computed behind a node: sizes that were sums of lengths are the number of rows now."""
    behind = {changed}
    edit = Editor(graph, changed, None, Options())
    for node in graph.graph.nodes:
        if node.op == "call_function" and any(n in behind for n in node.all_input_nodes):
            node.meta["val"] = edit.value(node.target, *node.args, **node.kwargs)
            behind.add(node)
