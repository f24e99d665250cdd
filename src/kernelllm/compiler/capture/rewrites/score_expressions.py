"""Score functions and computed masks of attention as Triton expressions for one tile of scores.

Operators of the graph are followed from the result to positions, numbers, loaded tensors and the product itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch.fx import Node

from kernelllm.compiler.capture.graph_editor import CONVERT, HALF, VIEWS
from kernelllm.compiler.capture.rewrites.element_operators import NotWritable, Piece, converted, plus, text_of

aten = torch.ops.aten
POSITIONS = ("batch", "head", "t", "s")
ROWS, ALL = frozenset(POSITIONS[:3]), frozenset(POSITIONS)


@dataclass(frozen=True)
class Factor:
    """A part of an index: a position among ``size``."""

    piece: Piece
    size: Any


Index = tuple[Factor, ...]
"""The index in one dimension, the slowest part first; none for a dimension of one element."""
Place = tuple[Index, ...]
"""The index in each dimension."""


@dataclass
class Lines:
    """Statements, and what they have named."""

    statements: list[str] = field(default_factory=list)
    named: dict[Any, Piece] = field(default_factory=dict)


def position(name: str, size: Any) -> Factor:
    """One of the four positions: batch, head, t (the query's), s (the key's)."""
    places = (1, "0") if name == "s" else (0, name)
    return Factor(Piece(name, frozenset((name,)), torch.int64, places), expression(size))


def expression(size: Any) -> Any:
    """A size as an expression."""
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)


class ScoreWriter:
    """Writes expressions for tiles of scores of these sizes. ``scores`` stands for ``product`` times the scale; ``scaled``: nodes that are
    that already."""

    def __init__(self, sizes: list[Any], product: Node | None, scaled: set[Node]) -> None:
        self.product, self.scaled = product, scaled
        self.index: Place = tuple(() if str(n) == "1" else (position(p, n),) for p, n in zip(POSITIONS, sizes, strict=True))
        self.scores = "scores"
        self.known: dict[Node, Piece] = {}
        """What the kernel has of other tensors of scores, and of their rows."""
        self.tensors: list[Node] = []
        self.numbers: list[Node] = []
        self.loads: list[frozenset[str]] = []
        """The positions on which each load depends."""
        self.rows = Lines()
        self.lines = Lines()
        self.pairs = False
        """Whether a value depends on both query and key."""
        self.made = 0

    def part(self) -> list[str]:
        """Begin a part of the kernel: what it names is unknown elsewhere, but for what depends on the query alone."""
        self.lines = Lines()
        return self.lines.statements

    def value(self, node: Any, index: Place) -> Piece:
        """The element of a tensor at an index. Raises NotWritable."""
        if not isinstance(node, Node):
            return self._number(node)
        if node is self.product or node in self.scaled:
            if [f.piece for one in index for f in one] != [f.piece for one in self.index for f in one]:
                raise NotWritable("the scores at other positions")
            return Piece(self.scores, ALL, torch.float32)
        if not isinstance(node.meta["val"], torch.Tensor):
            return self._number(node)
        if node.meta["val"].dim() != len(index):
            raise NotWritable("rank")
        if node in self.known:
            at, own = ([f.piece for one in places for f in one] for places in (index, self.index))
            if at not in (own, own[:-1]):
                raise NotWritable("the weights at other positions")
            return self.known[node]
        key = node, index
        for lines in (self.rows, self.lines):
            if key in lines.named:
                return lines.named[key]
        made = self._made(node, index)
        self.pairs |= {"t", "s"} <= made.of
        lines = self.rows if made.of <= ROWS else self.lines
        if not made.text.isidentifier() and (made.of or "tl.load" in made.text):
            self.made += 1
            name = f"{'row' if lines is self.rows else 'value'}_{self.made}"
            lines.statements.append(f"{name} = {made.text}")
            made = Piece(name, made.of, made.dtype, (made.places[0], made.places[1] if made.places[0] else name) if made.places else None)
        lines.named[key] = made
        return made

    def _made(self, node: Node, index: Place) -> Piece:
        before = len(self.tensors), len(self.loads), len(self.rows.statements), len(self.lines.statements), self.made
        kept = dict(self.rows.named), dict(self.lines.named)
        try:
            return self._computed(node, index)
        except NotWritable:
            if self._reads_product(node):
                raise
            del self.tensors[before[0] :], self.loads[before[1] :]
            del self.rows.statements[before[2] :], self.lines.statements[before[3] :]
            self.made = before[4]
            self.rows.named, self.lines.named = kept
            return self._load(node, [self.place(one) for one in index])

    def _reads_product(self, node: Node) -> bool:
        seen, todo = {node}, [node]
        while todo:
            one = todo.pop()
            if one is self.product or one in self.known:
                return True
            new = [n for n in one.all_input_nodes if n not in seen]
            seen.update(new)
            todo += new
        return False

    def _computed(self, node: Node, index: Place) -> Piece:
        moved = self.moved(node, index)
        if moved is not None:
            return self.value(*moved)
        target, dtype = node.target, node.meta["val"].dtype
        if target in (torch.ops.prims.iota.default, aten.arange.start_step):
            return self._iota(node, index)
        if target in (aten.full.default, aten.scalar_tensor.default):
            return self._number(node.args[target is aten.full.default], dtype)
        if target is aten.index.Tensor:
            return self._gathered(node.args[0], list(node.args[1]), index)
        if target is aten.embedding.default and len(node.args) == 2:
            return self._gathered(node.args[0], [node.args[1]], index)
        if node.op != "call_function":
            raise NotWritable(node.op)
        given: list[Any] = []
        for argument in node.args:
            known = isinstance(argument, Node) and isinstance(argument.meta["val"], torch.Tensor)
            given.append(self.value(argument, broadcast(argument, index)) if known else argument)
        given = [self._number(a) if isinstance(a, Node | int | float) and not isinstance(a, bool) else a for a in given]
        if target is CONVERT or target is aten._to_copy.default:
            made = converted(given[0], dtype)
            rounds = dtype in HALF and not self._reads_product(node) and node.args[0].meta["val"].dtype not in HALF
            if not rounds or not made.of:
                return made
            return Piece(f"({made.text}).to({str(dtype).replace('torch', 'tl')}).to(tl.float32)", made.of, made.dtype)
        return text_of(node, given, dtype)

    def moved(self, node: Node, index: Place) -> tuple[Node, Place] | None:
        """For an operator that only moves elements: what it reads, and where. None for another, or where that has no form."""
        try:
            return self._moved(node, index)
        except NotWritable:
            return None

    def _moved(self, node: Node, index: Place) -> tuple[Node, Place] | None:
        target, source = node.target, node.args[0] if node.args else None
        if not isinstance(source, Node) or not isinstance(source.meta.get("val"), torch.Tensor):
            return None
        shape = source.meta["val"].shape
        if target in (aten.clone.default, aten.alias.default, aten.detach.default):
            return source, index
        if target in VIEWS or target in (aten.unsqueeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.squeeze.default):
            return source, _split([f for one in index for f in one], shape)
        if target is aten.expand.default:
            return source, broadcast(source, index)
        if target is aten.permute.default:
            order = [d % len(shape) for d in node.args[1]]
            return source, tuple(index[order.index(d)] for d in range(len(shape)))
        if target is aten.select.int:
            dim, at = node.args[1] % len(shape), node.args[2]
            if not isinstance(at, int) or at < 0:
                raise NotWritable("select")
            one = Factor(Piece(str(at), frozenset(), torch.int64, (0, str(at))), expression(shape[dim]))
            return source, (*index[:dim], (one,) if str(shape[dim]) != "1" else (), *index[dim:])
        if target is aten.slice.Tensor:
            given: list[Any] = [*node.args[1:], *(0, 0, None, 1)[len(node.args) - 1 :]]
            dim, start, _, step = given
            size, whole = str(node.meta["val"].shape[dim]), str(node.meta["val"].shape[dim]) == str(shape[dim])
            if not whole and (size != "1" or start != 0 or step != 1):
                raise NotWritable("slice")
            first = Factor(Piece("0", frozenset(), torch.int64, (0, "0")), expression(shape[dim]))
            return source, (index if whole else (*index[:dim], (first,), *index[dim + 1 :]))
        return None

    def _iota(self, node: Node, index: Place) -> Piece:
        if node.target is torch.ops.prims.iota.default:
            start, step = node.kwargs.get("start", 0), node.kwargs.get("step", 1)
        else:
            start, step = node.args[0], node.args[2] if len(node.args) > 2 else 1
        dtype = node.meta["val"].dtype
        if step != 1 or dtype not in (torch.int64, torch.int32) or len(index) != 1:
            raise NotWritable("arange")
        at = self.place(index[0])
        return at if start == 0 else plus(at, self._number(start), 1)

    def place(self, index: Index) -> Piece:
        """An index as a number."""
        if not index:
            return Piece("0", frozenset(), torch.int64, (0, "0"))
        if len(index) > 1:
            raise NotWritable("an index of several parts")
        return index[0].piece

    def _gathered(self, source: Any, where: list[Any], index: Place) -> Piece:
        """Elements of a tensor at computed positions."""
        known = all(isinstance(w, Node) and w.meta["val"].dtype in (torch.int64, torch.int32) for w in where)
        if not known or self._reads_product(source):
            raise NotWritable("index")
        rank = max(w.meta["val"].dim() for w in where)
        places = [self.value(w, broadcast(w, index[:rank])) for w in where]
        places += [self.place(one) for one in index[rank:]]
        if len(places) != source.meta["val"].dim():
            raise NotWritable("index")
        return self._load(source, places, checked=len(where))

    def _load(self, node: Node, places: list[Piece], checked: int = 0) -> Piece:
        """A load of an element that lies in memory. The first ``checked`` places are computed, and may count from the end."""
        value = node.meta["val"]
        if value.dtype not in (torch.float32, torch.int64, torch.int32, torch.bool, torch.uint8, torch.int8, *HALF):
            raise NotWritable(str(value.dtype))
        if node not in self.tensors:
            self.tensors.append(node)
        name, inside, at = f"tensor_{self.tensors.index(node)}", [], []
        of = frozenset[str]().union(*(p.of for p in places))
        for dim, place in enumerate(places):
            if str(value.shape[dim]) == "1":
                continue
            text = place.text if place.text in ("batch", "head") or not place.of else f"({place.text}).to(tl.int64)"
            if dim < checked and place.text not in POSITIONS:
                size = f"{name}_size_{dim}"
                if not place.literal:
                    text = f"({text} + tl.where({place.text} < 0, {size}, 0))"
                elif int(text) < 0:
                    text = f"({size} {text})"
                inside.append(f"({place.text} >= -{size}) & ({place.text} < {size})")
            at.append(f"{text} * {name}_stride_{dim}")
        inside += [f"({p} < {p.upper()})" for p in ("t", "s") if p in of]
        given = f"{name}_ptr + ({' + '.join(at)})" if at else f"{name}_ptr"
        masked = f", mask={' & '.join(inside)}, other=0" if inside else ""
        text = f"tl.load({given}{masked})"
        self.loads.append(of)
        if value.dtype == torch.bool:
            return Piece(f"{text} != 0", of, torch.bool)
        if value.dtype.is_floating_point:
            return Piece(f"{text}.to(tl.float32)", of, torch.float32)
        return Piece(text, of, value.dtype, (0, text) if "s" not in of else None)

    def _number(self, number: Any, dtype: torch.dtype | None = None) -> Piece:
        if isinstance(number, Node):
            value = number.meta["val"]
            if not isinstance(value, torch.SymInt):
                raise NotWritable("a number")
            if number not in self.numbers:
                self.numbers.append(number)
            name = f"number_{self.numbers.index(number)}"
            return Piece(name, frozenset(), torch.int64, (0, name))
        if isinstance(number, bool):
            return Piece(f"tl.full((), {number}, tl.int1)", frozenset(), torch.bool)
        if not isinstance(number, int | float):
            raise NotWritable("a number")
        floating = isinstance(number, float) if dtype is None else dtype.is_floating_point
        if dtype == torch.bool:
            return Piece(f"tl.full((), {bool(number)}, tl.int1)", frozenset(), torch.bool)
        if floating:
            number = torch.tensor(float(number), dtype=dtype).item() if dtype in HALF else float(number)
            text = repr(number) if abs(number) < float("inf") else f'float("{number}")'
            return Piece(text, frozenset(), torch.float32)
        return Piece(repr(int(number)), frozenset(), torch.int64, (0, repr(int(number))))


def broadcast(node: Node, index: Place) -> Place:
    """The index in a tensor that is broadcast to what ``index`` is of. Raises NotWritable for one of more dimensions, which is reduced."""
    shape = node.meta["val"].shape
    if len(shape) > len(index):
        raise NotWritable("rank")
    found = []
    for size, one in zip(shape, index[len(index) - len(shape) :], strict=True):
        single = (Factor(one[0].piece, expression(size)),) if len(one) == 1 else one
        found.append(() if str(size) == "1" else single)
    return tuple(found)


def _split(factors: list[Factor], shape: Any) -> Place:
    """The parts of an index, in the dimensions of another shape of as many elements."""
    left = [f for f in factors if f.size != 1]
    found: list[Index] = []
    for size in map(expression, shape):
        taken: list[Factor] = []
        count = sympy.Integer(1)
        while sympy.expand(count - size) != 0:
            if not left:
                raise NotWritable("view")
            taken.append(left.pop(0))
            count = count * taken[-1].size
        found.append(tuple(taken))
    if left:
        raise NotWritable("view")
    return tuple(found)


__all__ = ["ALL", "POSITIONS", "ROWS", "Place", "ScoreWriter", "broadcast"]
