"""Computations that are alike on several parts of the rows, each part with its own matrices, become one computation on all rows.

Each element, and each row with its part's matrix, is computed by itself. So no part's length need be known to the host.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from kernelllm.compiler.capture.graph_editor import CONVERT, Editor
from kernelllm.compiler.options import Options

aten = torch.ops.aten
ALONG = {aten.split.Tensor: 2, aten.split_with_sizes.default: 2, aten.slice.Tensor: 1}
"""Operators that take a tensor apart, to the position of the dimension among their arguments."""
_PRODUCTS = (aten.mm.default, aten.addmm.default)
_TURNS = (aten.permute.default, aten.t.default, aten.transpose.int)
_SAME = (aten.alias.default, aten.view.default, aten.clone.default)
_CHECKS = ("aten._assert_scalar", "aten.sym_constrain_range")
_STACKED = 256 * 2**20
"""Bytes up to which matrices of the parts that are no stack are made one. The path for known sizes keeps it beside them."""
_LONG = 10**10
"""Multiplications of a part's product from which torch's product of that part alone is faster by more than launching it costs."""


def dim_of(node: Node) -> Any:
    """The dimension along which an operator works."""
    place = ALONG[node.target]
    return node.args[place] if len(node.args) > place else node.kwargs.get("dim", 0)


def hint(size: Any) -> int:
    """A size as a number: a symbolic one by its example value."""
    return size if isinstance(size, int) else int(size.node.hint or 0)


def element(node: Any) -> tuple[Node, int] | None:
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


def stack_of(nodes: list[Any]) -> Node | None:
    """The tensor whose elements, in order, these are."""
    held = [element(node) for node in nodes]
    if held[0] is None or any(one != (held[0][0], i) for i, one in enumerate(held)):
        return None
    return held[0][0]


@dataclass(frozen=True)
class Own:
    """An operand that each part has one of its own of: elements of ``stack``, or ``members``; transposed where ``turned``."""

    stack: Node | None
    members: tuple[Node, ...]
    turned: bool


def _own(nodes: list[Any]) -> Own | None:
    turned = False
    while all(isinstance(n, Node) and n.target in _TURNS and n.meta["val"].dim() == 2 for n in nodes):
        if any(n.target is aten.permute.default and tuple(n.args[1]) != (1, 0) for n in nodes):
            return None
        nodes, turned = [n.args[0] for n in nodes], not turned
    stack = stack_of(nodes)
    if stack is not None:
        return Own(stack, (), turned) if stack.meta["val"].shape[0] == len(nodes) else None
    values = [n.meta.get("val") for n in nodes]
    if any(n.op != "placeholder" or not isinstance(v, torch.Tensor) for n, v in zip(nodes, values, strict=True)):
        return None
    alike = len({(tuple(map(str, v.shape)), v.dtype) for v in values}) == 1
    size = len(nodes) * values[0].dtype.itemsize
    for extent in values[0].shape:
        size *= hint(extent)
    return Own(None, tuple(nodes), turned) if alike and size <= _STACKED else None


@dataclass
class AlikeParts:
    """What is computed of parts, found for all of them side by side."""

    same: dict[Node, list[Node]]
    """What is made of the first part, in the graph's order, to the same of each part. The parts themselves come first."""
    ends: Callable[[AlikeParts, Node], bool]
    """Whether a node is where the first part's result is put together with the others'."""
    by_rows: Callable[[AlikeParts, Node], bool] = lambda parts, node: False
    """Further operators that compute each row by itself."""
    own: dict[Node, Own] = field(default_factory=dict)
    """Operands of the first part's operators that the others have their own of."""

    def followed(self) -> bool:
        """Whether all parts are treated alike until they are put together, and nothing else reads what is made of them."""
        first = next(iter(self.same))
        behind, end, node = {first}, None, first.next
        while node.op != "output":
            if any(n in behind for n in node.all_input_nodes):
                if end is None and self.ends(self, node):
                    end = node
                elif self._found(node):
                    behind.add(node)
                else:
                    return False
            node = node.next
        read_elsewhere = any(user not in behind and user is not end for node in behind for user in node.users)
        return end is not None and not read_elsewhere

    def _found(self, first: Node) -> bool:
        """Note what is made of the other parts as ``first`` is made of the first one; False where it is not, or not row by row."""
        row_by_row = _elementwise(first) or _of_columns(first) or self._product(first) or self.by_rows(self, first)
        if not row_by_row or not self._of_rows(first):
            return False
        known = next(n for n in first.all_input_nodes if n in self.same)
        every = [first]
        for place in range(1, len(self.same[known])):
            like = [u for u in self.same[known][place].users if u.target is first.target and self._alike(first, u, place)]
            taken = {nodes[place] for nodes in self.same.values()}
            if not (like := [u for u in like if u not in taken]):
                return False
            every.append(like[0])
        self.same[first] = every
        return all(self._known(number, operand, every) for number, operand in enumerate(first.all_input_nodes))

    def _of_rows(self, node: Node) -> bool:
        """Whether a result has the first part's rows in front: they may not become columns, nor fewer."""
        rows = str(next(iter(self.same)).meta["val"].shape[0])
        return all(v.dim() and str(v.shape[0]) == rows for v in pytree.tree_leaves(node.meta["val"]) if isinstance(v, torch.Tensor))

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

    def _product(self, node: Node) -> bool:
        product = node.target in _PRODUCTS and not node.kwargs
        return product and node.args[-2] in self.same and node.args[-1] not in self.same

    def long(self, rows: int) -> bool:
        """Whether products of the parts are so long that launching one by one costs little. ``rows``: of all parts."""
        each = rows // len(next(iter(self.same.values())))
        sizes = [node.args[-1].meta["val"].shape for node in self.same if node.target in _PRODUCTS]
        return any(each * hint(k) * hint(n) > _LONG for k, n in sizes)


def _elementwise(node: Node) -> bool:
    return node.target is CONVERT or torch.Tag.pointwise in getattr(node.target, "tags", ())


def _of_columns(node: Node) -> bool:
    return node.target is operator.getitem or (node.target in ALONG and dim_of(node) in (1, -1))


class AllRows:
    """Operators on the rows of all parts."""

    def __init__(self, edit: Editor, parts: AlikeParts, made: dict[Node, Node], ends: Node, rows: Any) -> None:
        """``made``: of all rows, to what it is of the first part. ``ends``: int32, behind the last row of each. ``rows``: how many there
        are."""
        self._edit, self._parts, self._made, self._ends, self._rows = edit, parts, made, ends, rows
        self._part: Node | None = None
        self._stacks: dict[Own, Node] = {}

    def of_all(self) -> dict[Node, Node]:
        """What is to all rows as each node is to the first part's."""
        for node in self._parts.same:
            if node not in self._made:
                self._made[node] = self._of(node)
        return self._made

    def _of(self, first: Node) -> Node:
        matrix = self._parts.own.get(first.args[-1]) if first.target in _PRODUCTS else None
        whole = self._stack(matrix) if matrix is not None else None
        if operator_called := first.meta.get("original_aten"):
            self._edit.called(operator_called)
        if matrix is not None and whole is not None:
            stack = self._edit.call(aten.permute.default, whole, [0, 2, 1]) if matrix.turned else whole
            rows: Any = self._made[first.args[-2]]
            product = self._edit.template("grouped_matmul", rows, stack, self._ends, allow_tf32=self._edit.options.matmul_tf32)
            bias: Any = first.args[0]
            return self._edit.call(aten.add.Tensor, product, self._operand(bias)) if first.target is aten.addmm.default else product
        args, kwargs = map_arg(
            (first.args, first.kwargs), lambda node: self._made[node] if node in self._made else self._operand(node)
        )
        return self._edit.call(first.target, *args, **kwargs)

    def _stack(self, own: Own) -> Node:
        if own.stack is not None:
            return own.stack
        if own not in self._stacks:
            self._edit.called(aten.stack.default)
            each = [self._edit.call(aten.unsqueeze.default, member, 0) for member in own.members]
            self._stacks[own] = self._edit.call(aten.cat.default, each)
        return self._stacks[own]

    def _operand(self, operand: Node) -> Node:
        """What is no part: as it is where all share it, otherwise each row's own."""
        own = self._parts.own.get(operand)
        if own is None:
            return operand
        if self._part is None:  # of each row; rows behind the last part have zeros, and any will do
            how = {"dtype": torch.int32, "device": self._ends.meta["val"].device, "requires_grad": False}
            place = self._edit.call(torch.ops.prims.iota.default, self._rows, start=0, step=1, **how)
            behind = self._edit.call(aten.ge.Tensor, self._edit.call(aten.unsqueeze.default, place, 1), self._ends)
            last = self._ends.meta["val"].shape[0] - 1
            self._part = self._edit.call(aten.clamp_max.default, self._edit.call(aten.sum.dim_IntList, behind, [1]), last)
        found = self._edit.call(aten.index.Tensor, self._stack(own), [self._part])
        return found if operand.meta["val"].dim() else self._edit.call(aten.unsqueeze.default, found, 1)


def replace(graph: GraphModule, old: Node, new: Node) -> None:
    """``new`` in the place of ``old``, without what only ``old`` needed."""
    old.replace_all_uses_with(new)
    for node in reversed(list(graph.graph.nodes)):
        checks = str(node.target).startswith(_CHECKS)
        if checks or (node.op == "call_function" and not node.users and (not node.is_impure() or "_local_scalar" in str(node.target))):
            graph.graph.erase_node(node)
    propagate(graph, {new})


def propagate(graph: GraphModule, changed: set[Node]) -> None:
    """Example values of what is computed behind nodes whose sizes have other names now, such as the number of rows for a sum of lengths."""
    behind = set(changed)
    edit = Editor(graph, next(iter(graph.graph.nodes)), None, Options())
    for node in graph.graph.nodes:
        if node.op == "call_function" and any(n in behind for n in node.all_input_nodes):
            if not node.meta.get("unbacked_bindings"):  # a length that is found has its name from there
                node.meta["val"] = edit.value(node.target, *node.args, **node.kwargs)
            behind.add(node)


__all__ = ["AlikeParts", "AllRows", "element", "propagate", "replace", "stack_of"]
