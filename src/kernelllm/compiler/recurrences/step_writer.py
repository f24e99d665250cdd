"""A step's graph as statements of a kernel: each value is computed where it is wanted, at indices that the reader gives.

Dimensions that are no rows lie along positions of a block of numbers. A reader says by which position it goes, so that a value is never
turned: it is computed once more, or permuted where it goes from step to step.
"""

from __future__ import annotations

import math
import re
from typing import Any

import torch
from torch.fx import GraphModule, Node

from kernelllm.compiler.recurrences import step_operators
from kernelllm.compiler.recurrences.row_dimensions import RowDimensions, mixed_dims, rank, same
from kernelllm.compiler.recurrences.step_graphs import need
from kernelllm.compiler.recurrences.step_moves import MovingRules
from kernelllm.compiler.recurrences.step_sizes import StepSizes

Index = tuple[str, ...]
_TOKEN = re.compile(r"\bp(\d+)_(\w+)\b")
_NAME = re.compile(r"\bv\d+\b")
_KEPT, _ALL_KEPT = 4096, 16384
"""Elements of a block, and of all, that are loaded ahead of the loop where they are the same in every step."""
_LARGEST = 32768


class FromMemory(Exception):
    """What a step gives the next is read at other places than its own: it is to go through memory."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class TooFewPositions(Exception):
    """A value has more dimensions than the block."""


class StepWriter(MovingRules):
    """Writes one step. ``stored``: what goes through memory, by its number. ``lanes``: the row along the block's last dimension."""

    def __init__(
        self, step: GraphModule, counts: tuple[int, int], rows: RowDimensions, sizes: StepSizes, positions: int, stored: set[int],
        lanes: int | None,
    ) -> None:  # fmt: skip
        self.rows, self.sizes, self.positions, self.stored, self.lanes = rows, sizes, positions, stored, lanes
        self.inputs = list(step.graph.find_nodes(op="placeholder"))
        self.carried, self.sliced = counts
        self.numbers = {node: i for i, node in enumerate(self.inputs)}
        self.known: dict[tuple[Node, Index], str] = {}
        self.tokens: dict[str, set[str]] = {}
        """Positions along which a variable lies, by its name."""
        self.varies: dict[str, bool] = {}
        self.ahead: list[str] = []
        self.body: list[str] = []
        self.used: dict[str, tuple[int, Any]] = {}
        """Position and size of each name of indices."""
        self.joined = {}
        self.strides: list[str] = []
        self.largest = self.held = 1

    # names

    def token(self, position: int, size: Any) -> str:
        """The name of the indices along a position."""
        if position >= self.positions:
            raise TooFewPositions
        name = f"p{position}_{self.sizes.key(size)}"
        self.used[name] = (position, size)
        return name

    def tokens_in(self, text: str) -> set[str]:
        """Names of indices that an expression depends on."""
        found = {m[0] for m in _TOKEN.finditer(text)}
        return found.union(*(self.tokens[name] for name in _NAME.findall(text)))

    def row_name(self, node: Node, dim: int) -> str | None:
        """The index of a dimension that is a row."""
        row = self.rows.row(node, dim)
        return None if row is None else f"row_{row}"

    def own_index(self, node: Node) -> Index:
        """The indices at which a result is stored."""
        found, position = [], 0
        for d in range(rank(node)):
            row = self.row_name(node, d)
            size = node.meta["val"].shape[d]
            if row is None and not same(size, 1):
                found.append(self.token(position, size))
                position += 1
            else:
                found.append(row or "0")
        return tuple(found)

    def line(self, text: str, *, varies: bool | None = None) -> str:
        """A statement for an expression; returns the variable. What does not vary from step to step is computed ahead."""
        name = f"v{len(self.tokens)}"
        read = _NAME.findall(text)
        self.tokens[name] = self.tokens_in(text)
        self.varies[name] = any(self.varies[n] for n in read) if varies is None else varies
        elements = self.elements(self.tokens[name])
        self.largest = max(self.largest, elements)
        need(elements <= _LARGEST, "a block of its step is too large")
        if not self.varies[name] and (elements > _KEPT or self.held + elements > _ALL_KEPT):
            self.varies[name] = True  # it is computed again in each step
        if self.varies[name]:
            self.body.append(f"{name} = {text}")
        else:
            self.held += elements
            self.ahead.append(f"{name} = {text}")
        return name

    def elements(self, tokens: set[str]) -> int:
        """Elements of a block along some indices, at the problem's own sizes."""
        sides = [2 ** math.ceil(math.log2(max(self.sizes.hint(self.used[t][1]), 1))) for t in tokens]
        return math.prod(sides)

    # values

    def value(self, node: Any, index: Index) -> str:
        """The variable, or the number, that is a node at these indices."""
        if not isinstance(node, Node):
            return step_operators.literal(node, self.sizes)
        if not isinstance(node.meta.get("val"), torch.Tensor):
            return self.sizes.text(node.meta["val"])
        key = (node, index)
        if key not in self.known:
            self.known[key] = self.load(node, index) if node.op == "placeholder" else self.computed(node, index)
        return self.known[key]

    def aligned(self, node: Any, other: Node, index: Index) -> Index:
        """The indices of an operand, given those of the result."""
        return tuple("0" if same(node.meta["val"].shape[d], 1) else index[rank(other) - rank(node) + d] for d in range(rank(node)))

    def load(self, node: Node, index: Index) -> str:
        number = self.numbers[node]
        if number < self.carried:
            for d in range(rank(node)):
                need((self.row_name(node, d) or index[d]) == index[d], "rows of its state are read at other places")
            if number not in self.stored:
                return self.kept(node, number, index)
        name = f"h{number}" if number < self.carried else f"x{number - self.carried}"
        return self.loaded(node, name, index, varies=number < self.carried + self.sliced)

    def loaded(self, node: Node, name: str, index: Index, *, varies: bool) -> str:
        """A load from memory. A variable among the indices is one of a step."""
        value = node.meta["val"]
        offsets, masks = [], []
        for d, at in enumerate(index):
            if at == "0" and same(value.shape[d], 1):
                continue
            plain = _TOKEN.fullmatch(at)
            row = self.row_name(node, d)
            if not (at.startswith("row_") and row == at) and not (plain and self.used[at][1] == value.shape[d]):
                masks += [f"({at} >= 0)", f"({at} < {self.sizes.text(value.shape[d])})"]
            offsets.append(f"{at} * {self.stride(name, d)}")
        text = f"{name}_ptr + ({' + '.join([*offsets, 'zero'])})"
        tokens = set().union(*(self.tokens_in(at) for at in index))
        mask = " & ".join([*masks, *self.inside(tokens)]) or "zero == 0"
        varies = varies or any(self.varies[n] for at in index for n in _NAME.findall(at))
        return self.line(step_operators.as_computed(f"tl.load({text}, mask={mask}, other=0)", value.dtype), varies=varies)

    def stride(self, name: str, dim: int) -> str:
        """The argument for a stride."""
        text = f"{name}_stride_{dim}"
        if text not in self.strides:
            self.strides.append(text)
        return text

    def inside(self, tokens: set[str]) -> list[str]:
        """Conditions that indices along the block are inside."""
        found = [f"({t} < {self.sizes.text(self.used[t][1])})" for t in sorted(tokens)]
        return [*found, *([f"(row_{self.lanes} < rows_{self.lanes})"] if self.lanes is not None else [])]

    def kept(self, node: Node, number: int, index: Index) -> str:
        """What goes from step to step in registers, turned as it is wanted."""
        own = self.own_index(node)
        moved: dict[int, int] = {}
        for at, mine in zip(index, own, strict=True):
            one, other = _TOKEN.fullmatch(at), _TOKEN.fullmatch(mine)
            if other is None:
                if at != mine:
                    raise FromMemory(number)
                continue
            if one is None or one[2] != other[2] or int(one[1]) in moved:
                raise FromMemory(number)
            moved[int(one[1])] = int(other[1])
        name = f"state_{number}"
        turned = any(k != v for k, v in moved.items())
        rest = iter(p for p in range(self.positions) if p not in moved.values())
        order = [moved[p] if p in moved else next(rest) for p in range(self.positions)]
        order += [self.positions] if self.lanes is not None else []
        made = self.line(f"tl.permute({name}, {tuple(order)})" if turned else name, varies=True)
        self.tokens[made] = set().union(*(self.tokens_in(at) for at in index))
        return made

    # operators

    def computed(self, node: Node, index: Index) -> str:
        name = step_operators.name_of(node)
        if (rule := getattr(self, f"do_{name}", None)) is not None:
            return str(rule(node, index))
        if name in step_operators.REDUCTIONS:
            return self.reduced(node, node.args[0], index, name)
        need(name in step_operators.ELEMENTWISE, f"its step has {node.target}")
        return self.elementwise(node, index, name)

    def elementwise(self, node: Node, index: Index, name: str) -> str:
        values = [self.value(a, self.aligned(a, node, index) if rank(a) else ()) for a in node.args]
        values = [self.float_of(v, a) if name in step_operators.OF_FLOATS else v for v, a in zip(values, node.args, strict=True)]
        return self.line(step_operators.text_of(node, name, values))

    def float_of(self, value: str, argument: Any) -> str:
        """A whole number as a float."""
        given = argument.meta["val"] if isinstance(argument, Node) else None
        return f"{value}.to(tl.float32)" if isinstance(given, torch.Tensor) and not given.is_floating_point() else value

    def free(self, index: Index, count: int) -> list[int]:
        """Positions that no index uses."""
        taken = {self.used[t][0] for at in index for t in self.tokens_in(at)}
        found = [p for p in range(self.positions + count) if p not in taken][:count]
        if any(p >= self.positions for p in found):
            raise TooFewPositions
        return found

    def reduced(self, node: Node, source: Any, index: Index, name: str) -> str:
        """A reduction. ``source``: what is reduced."""
        shape = source.meta["val"].shape
        dims = mixed_dims(node, name, rank(source))
        value = node.meta["val"]
        value = value[0] if isinstance(value, tuple | list) else value
        stays = value.dim() == rank(source)
        wide = [d for d in dims if not same(shape[d], 1)]
        tokens = dict(zip(wide, (self.token(p, shape[d]) for p, d in zip(self.free(index, len(wide)), wide, strict=True)), strict=True))
        rest = iter(index)
        whole = []
        for d in range(rank(source)):
            at = "0" if d in dims and not stays else next(rest)
            whole.append(tokens.get(d, "0") if d in dims else at)
        made = self.value(source, tuple(whole))
        return self.over(made, list(tokens.values()), name, node, source.meta["val"].dtype)

    def over(self, made: str, tokens: list[str], name: str, node: Node, dtype: torch.dtype) -> str:
        """A reduction over indices of a variable."""
        start, call, end = step_operators.REDUCTIONS[name]
        count = " * ".join([self.sizes.text(self.used[t][1]) for t in tokens] or ["1"])
        if name in ("argmax", "argmin") and not tokens:
            return self.line("zero.to(tl.int64)")
        if tokens:
            inside = " & ".join(self.inside_only(tokens))
            made = f"{made}.to(tl.int32)" if dtype == torch.bool else made
            made = self.line(f"tl.where({inside}, {made}, {step_operators.identity(start, dtype)})")
        for token in tokens:
            made = self.line(f"{call}({made}, axis={self.used[token][0]}, keep_dims=True)")
            self.tokens[made] -= {token}
        return self.line(end.format(made, count=count)) if end else made

    def inside_only(self, tokens: list[str]) -> list[str]:
        return [f"({t} < {self.sizes.text(self.used[t][1])})" for t in tokens]

    def do_getitem(self, node: Node, index: Index) -> str:
        source: Any = node.args[0]
        name = step_operators.name_of(source)
        need(name in ("max", "min"), f"its step has {source.target}")
        return self.reduced(source, source.args[0], index, name if node.args[1] == 0 else f"arg{name}")


__all__ = ["FromMemory", "StepWriter", "TooFewPositions"]
