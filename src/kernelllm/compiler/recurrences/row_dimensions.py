"""Which dimensions of a step are rows: along those, nothing of one element reaches another, so that each is a program of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

aten = torch.ops.aten
Place = tuple[Node, int]
_ALONG = {"sum", "mean", "amax", "amin", "argmax", "argmin", "max", "min", "prod", "any", "all", "flip", "slice", "select", "cat", "gather",
          "scatter", "scatter_add", "constant_pad_nd", "sort", "cumsum", "index", "embedding", "roll", "var", "scatter_reduce"}  # fmt: skip


class RowDimensions:
    """The classes of dimensions of a step's graph, by what stands side by side in its operators."""

    def __init__(self, step: GraphModule, carried: int) -> None:
        self.parents: dict[Place, Place] = {}
        self.mixed: set[Place] = set()
        self.joined: list[tuple[Place, list[Place]]] = []
        """Dimensions that a view made of several."""
        places = step.graph.find_nodes(op="placeholder")
        self.results: list[Any] = list(step.graph.output_node().args[0])
        for node in step.graph.nodes:
            if node.op == "call_function":
                self._note(node)
        for one, other in zip(places[:carried], self.results, strict=False):
            for d in range(rank(one)):
                if isinstance(other, Node):
                    self._join((one, d), (other, d))
        mixed = {self._root(p) for p in self.mixed}
        for place, parts in reversed(self.joined):
            mixed |= {self._root(p) for p in parts} if self._root(place) in mixed else set()
        self.rows: list[Place] = []
        """Classes that are rows, in the order in which the first tensors that are carried have them."""
        for node in places[:carried]:
            for d in range(rank(node)):
                root = self._root((node, d))
                if root not in mixed and root not in self.rows and not _one(node, d):
                    self.rows.append(root)

    def row(self, node: Node, dim: int) -> int | None:
        """The row's number that a dimension is; None where it is none."""
        root = self._root((node, dim))
        return self.rows.index(root) if root in self.rows and not _one(node, dim) else None

    def _root(self, place: Place) -> Place:
        while (parent := self.parents.get(place, place)) != place:
            place = parent
        return place

    def _join(self, one: Place, other: Place) -> None:
        if not _one(*one) and not _one(*other):
            self.parents[self._root(one)] = self._root(other)

    def _aligned(self, node: Node, other: Node, *, but: Sequence[int] = ()) -> None:
        """Dimensions are joined from the last on, except for those of ``node`` in ``but``, which mix elements."""
        for d in range(-1, -min(rank(node), rank(other)) - 1, -1):
            if d % rank(node) not in but:
                self._join((node, d % rank(node)), (other, d % rank(other)))

    def _note(self, node: Node) -> None:
        name, inputs = str(node.target).split(".")[1] if "." in str(node.target) else "", [n for n in node.all_input_nodes if rank(n)]
        target: Any = node.target
        if name == "permute":
            for d, s in enumerate(node.args[1]):
                self._join((node, d), (inputs[0], s % rank(inputs[0])))
        elif name == "unsqueeze":
            at = node.args[1] % rank(node)
            for d in range(rank(inputs[0])):
                self._join((node, d + (d >= at)), (inputs[0], d))
        elif name in ("squeeze", "view", "reshape", "_unsafe_view") and inputs:
            self._note_view(node, inputs[0])
        elif name in _ALONG and inputs:
            self._note_mixing(node, name, inputs)
        elif isinstance(target, torch._ops.OpOverload):
            for other in inputs:
                self._aligned(node, other) if rank(node) else None

    def _note_view(self, node: Node, source: Node) -> None:
        for outs, ins in groups(source.meta["val"].shape, node.meta["val"].shape):
            if len(outs) == len(ins) == 1:
                self._join((node, outs[0]), (source, ins[0]))
            elif len(outs) == 1:
                self.joined.append(((node, outs[0]), [(source, d) for d in ins]))
            elif len(ins) == 1:
                root, sizes = self._root((source, ins[0])), [node.meta["val"].shape[d] for d in outs]
                for place, parts in self.joined:
                    alike = self._root(place) == root and len(parts) == len(outs)
                    if alike and all(same(p.meta["val"].shape[d], n) for (p, d), n in zip(parts, sizes, strict=True)):
                        for d, own in zip(outs, parts, strict=True):
                            self._join((node, d), own)

    def _note_mixing(self, node: Node, name: str, inputs: list[Node]) -> None:
        source = inputs[0]
        if name in ("index", "embedding"):
            own = own_positions(node) if name == "index" else {}
            self.mixed |= {(source, d) for d in range(rank(source)) if d not in own}
            for d, at in own.items():
                self._join((source, d), (node, at))
            for other in inputs[1:]:
                self._aligned(node, other) if rank(other) == rank(node) else None
            return
        dims = mixed_dims(node, name, rank(source))
        self.mixed |= {(s, d) for s in inputs if rank(s) == rank(source) for d in dims}
        kept = [d for d in range(rank(source)) if d not in dims]
        values: Any = node.meta["val"]
        if isinstance(values, tuple | list):
            for user in node.users:
                self._kept(user, source, kept, dims)
            return
        for other in inputs:
            if rank(other) == rank(source):
                self._kept(node, other, kept, dims)

    def _kept(self, node: Node, source: Node, kept: list[int], dims: Sequence[int]) -> None:
        """Join the dimensions that an operator keeps; those it mixes are gone, or stay in their place."""
        if rank(node) == rank(source):
            self.mixed |= {(node, d) for d in dims}
            for d in kept:
                self._join((node, d), (source, d))
        elif rank(node) == len(kept):
            for at, d in enumerate(kept):
                self._join((node, at), (source, d))


def mixed_dims(node: Node, name: str, dims: int) -> list[int]:
    """Dimensions along which an operator moves or joins elements."""
    args = list(node.args)
    if name == "constant_pad_nd":
        pads: Any = args[1]
        return [dims - 1 - i for i in range(len(pads) // 2) if pads[2 * i] != 0 or pads[2 * i + 1] != 0]
    given: Any = args[1] if len(args) > 1 else node.kwargs.get("dim")
    if name in ("slice", "select", "cat") and given is None:
        given = 0
    if given is None or given == []:
        return list(range(dims))
    found = [d % dims for d in ([given] if isinstance(given, int) else given)] if dims else []
    if name == "slice":  # of a whole dimension
        given, made = (n.meta["val"].shape[found[0]] for n in (args[0], node))
        return [] if same(given, made) else found
    return found


def own_positions(node: Node) -> dict[int, int]:
    """Dimensions of what is picked from (``x[rows, chosen]``) along which each element of the result is at its own place, with the
    result's dimension: there a range of all places picks."""
    chosen: Any = node.args[1]
    places = [i for i, c in enumerate(chosen) if c is not None]
    dims = max(rank(c) for c in chosen if c is not None)
    source: Any = node.args[0]
    shape = source.meta["val"].shape
    if places != list(range(places[0], places[-1] + 1)):
        return {}
    found = {}
    for i in places:
        along = _range_along(chosen[i])
        if along is not None and same(chosen[i].meta["val"].shape[along], shape[i]):
            found[i] = places[0] + dims - rank(chosen[i]) + along
    return found


def _range_along(node: Any) -> int | None:
    """The dimension along which a tensor is the range of its places; None where it is none."""
    if not isinstance(node, Node) or node.op != "call_function":
        return None
    name = str(node.target).split(".")[1] if "." in str(node.target) else ""
    if name in ("iota", "arange"):
        given = (node.kwargs.get("start", 0), node.kwargs.get("step", 1)) if name == "iota" else (0, 1)
        return 0 if given == (0, 1) and (name == "iota" or len(node.args) == 1) else None
    if name not in ("unsqueeze", "view", "reshape", "_to_copy", "expand", "alias", "clone"):
        return None
    source: Any = node.args[0]
    before = _range_along(source)
    size = None if before is None else source.meta["val"].shape[before]
    at = [d for d, n in enumerate(node.meta["val"].shape) if not same(n, 1)]
    return at[0] if len(at) == 1 and same(node.meta["val"].shape[at[0]], size) else None


def rank(node: Any) -> int:
    """The number of a tensor's dimensions; 0 for what is none."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    return value.dim() if isinstance(value, torch.Tensor) else 0


def _one(node: Node, dim: int) -> bool:
    value: Any = node.meta["val"]
    return isinstance(value, torch.Tensor) and same(value.shape[dim], 1)


def expression(size: Any) -> Any:
    """A size as a sympy expression or a number."""
    return size.node.expr if isinstance(size, torch.SymInt | torch.SymFloat) else size


def same(one: Any, other: Any) -> bool:
    """Whether two sizes are the same for certain."""
    return bool(expression(one) == expression(other))


def groups(given: Sequence[Any], wanted: Sequence[Any]) -> list[tuple[list[int], list[int]]]:
    """A view as groups of dimensions with as many elements: those of the view, those of its source. Sizes of 1 are left out."""
    outs = [d for d, n in enumerate(wanted) if not same(n, 1)]
    ins = [d for d, n in enumerate(given) if not same(n, 1)]
    found: list[tuple[list[int], list[int]]] = []
    while outs and ins:
        left, right = [outs.pop(0)], [ins.pop(0)]
        many, few = expression(wanted[left[0]]), expression(given[right[0]])
        while many != few:
            if outs and (not ins or _less(many, few)):
                left.append(outs.pop(0))
                many = many * expression(wanted[left[-1]])
            elif ins:
                right.append(ins.pop(0))
                few = few * expression(given[right[-1]])
            else:
                return [([*range(len(wanted))], [*range(len(given))])]
        found.append((left, right))
    return found


def _less(one: Any, other: Any) -> bool:
    """Whether the view's part is the smaller one: where symbols hide it, whether the other is a multiple of it."""
    if isinstance(one, int) and isinstance(other, int):
        return one < other
    quotient = other / one
    return bool(getattr(quotient, "is_integer", False) or not (one / other).is_integer)
