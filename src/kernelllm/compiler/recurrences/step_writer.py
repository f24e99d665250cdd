"""A step's graph as statements of a kernel: each value is computed where it is wanted, at indices that the reader gives.

Dimensions that are no rows lie along positions of a block of numbers. A reader says by which position it goes, so that a value is never
turned: it is computed once more, or permuted where it goes from step to step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch.fx import GraphModule, Node

from kernelllm.compiler.recurrences import step_operators
from kernelllm.compiler.recurrences.row_dimensions import RowDimensions, expression, groups, mixed_dims, rank, same
from kernelllm.compiler.recurrences.step_graphs import need
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


class StepWriter:
    """Writes one step. ``stored``: what goes through memory, by its number. ``lanes``: the row that lies along the block's last dimension."""

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
        self.joined: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        """Sizes and indices that were joined to one index."""
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
        whole = isinstance(argument, Node) and isinstance(argument.meta["val"], torch.Tensor) and not argument.meta["val"].is_floating_point()
        return f"{value}.to(tl.float32)" if whole else value

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

    def do_permute(self, node: Node, index: Index) -> str:
        order: Any = node.args[1]
        found = dict(zip([d % len(order) for d in order], index, strict=True))
        return self.value(node.args[0], tuple(found[d] for d in range(len(order))))

    def do_unsqueeze(self, node: Node, index: Index) -> str:
        at = node.args[1] % rank(node)  # type: ignore[operator]
        return self.value(node.args[0], index[:at] + index[at + 1 :])

    def do_expand(self, node: Node, index: Index) -> str:
        return self.value(node.args[0], self.aligned(node.args[0], node, index))

    def do_view(self, node: Node, index: Index) -> str:
        source: Any = node.args[0]
        given, wanted = source.meta["val"].shape, node.meta["val"].shape
        found = ["0"] * rank(source)
        for outs, ins in groups(given, wanted):
            sides = tuple(self.sizes.text(given[d]) for d in ins)
            linear = index[outs[0]]
            if len(outs) == 1 and len(ins) > 1 and self.joined.get(linear, ((), ()))[0] == sides:
                found[ins[0] : ins[-1] + 1] = [a for d in range(ins[0], ins[-1] + 1) for a in [self._of(linear, ins, d)]]
                continue
            for d in outs[1:]:
                linear = f"({linear} * {self.sizes.text(wanted[d])} + {index[d]})"
            if len(outs) > 1:
                self.joined[linear] = tuple(self.sizes.text(wanted[d]) for d in outs), tuple(index[d] for d in outs)
            behind = "1"
            for d in reversed(ins):
                size = self.sizes.text(given[d])
                at = linear if behind == "1" else f"({linear} // ({behind}))"
                found[d] = at if d == ins[0] else f"({at} % {size})"
                behind = size if behind == "1" else f"{behind} * {size}"
        return self.value(source, tuple(found))

    def _of(self, linear: str, dims: list[int], dim: int) -> str:
        """The index that was joined with others, by the dimension."""
        return self.joined[linear][1][dims.index(dim)] if dim in dims else "0"

    do_reshape = do__unsafe_view = do_squeeze = do_view

    def do_select(self, node: Node, index: Index) -> str:
        source: Any = node.args[0]
        at = node.args[1] % rank(source)  # type: ignore[operator]
        return self.value(source, (*index[:at], self.place(node.args[2], source, at), *index[at:]))

    def place(self, number: Any, source: Node, dim: int) -> str:
        """An index that may count from the end."""
        size = source.meta["val"].shape[dim]
        if isinstance(number, int) and number < 0:
            return str(size + number) if isinstance(size, int) else f"({self.sizes.text(size)} - {-number})"
        return self.value(number, ())

    def do_slice(self, node: Node, index: Index) -> str:
        source: Any = node.args[0]
        at = self.dim_of(node) % rank(source)
        start: Any = node.args[2] if len(node.args) > 2 else 0
        step: Any = node.args[4] if len(node.args) > 4 else 1
        text = index[at] if step == 1 else f"{index[at]} * {step}"
        begins = "0" if start is None else self.place(start, source, at)
        moved = text if begins == "0" else f"({text} + {begins})"
        return self.value(source, (*index[:at], moved, *index[at + 1 :]))

    def dim_of(self, node: Node) -> int:
        return node.args[1] if len(node.args) > 1 else 0  # type: ignore[return-value]

    def do_flip(self, node: Node, index: Index) -> str:
        dims = mixed_dims(node, "flip", rank(node))
        sizes = [self.sizes.text(n) for n in node.meta["val"].shape]
        return self.value(node.args[0], tuple(f"({sizes[d]} - 1 - {at})" if d in dims else at for d, at in enumerate(index)))

    def do_cat(self, node: Node, index: Index) -> str:
        parts: Any = node.args[0]
        at = self.dim_of(node) % rank(node)
        made, end = "", "0"
        for part in parts:
            size = self.sizes.text(part.meta["val"].shape[at])
            moved = index[at] if end == "0" else f"({index[at]} - {end})"
            value = self.value(part, (*index[:at], moved, *index[at + 1 :]))
            made = value if not made else self.line(f"tl.where({index[at]} < {end}, {made}, {value})")
            end = size if end == "0" else f"({end} + {size})"
        return made

    def do_constant_pad_nd(self, node: Node, index: Index) -> str:
        source, pads = node.args[0], node.args[1]
        fill = node.args[2] if len(node.args) > 2 else 0
        found, tests = list(index), []
        for i in range(len(pads) // 2):  # type: ignore[arg-type]
            d = rank(node) - 1 - i
            low, high = pads[2 * i], pads[2 * i + 1]  # type: ignore[index]
            if low != 0:
                found[d] = f"({index[d]} - {self.value(low, ())})"
                tests.append(f"({found[d]} >= 0)")
            if high != 0:
                tests.append(f"({found[d]} < {self.sizes.text(source.meta['val'].shape[d])})")  # type: ignore[union-attr]
        value = self.value(source, tuple(found))
        return self.line(f"tl.where({' & '.join(tests)}, {value}, {self.value(fill, ())})") if tests else value

    def do_gather(self, node: Node, index: Index) -> str:
        source, at = node.args[0], node.args[1] % rank(node)  # type: ignore[operator]
        chosen = self.value(node.args[2], index)
        return self.value(source, (*index[:at], chosen, *index[at + 1 :]))

    def do_embedding(self, node: Node, index: Index) -> str:
        return self.value(node.args[0], (self.value(node.args[1], index[:-1]), index[-1]))

    def do_index(self, node: Node, index: Index) -> str:
        source: Any = node.args[0]
        chosen: Any = list(node.args[1])  # type: ignore[arg-type]
        places = [i for i, c in enumerate(chosen) if c is not None]
        need(places == list(range(places[0], places[-1] + 1)), "its step picks elements along dimensions that are apart")
        dims = max(rank(c) for c in chosen if c is not None)
        own = index[places[0] : places[0] + dims]
        found = list(index[: places[0]])
        for c, d in zip(chosen[places[0] :], places, strict=True):
            at = self.value(c, tuple("0" if same(c.meta["val"].shape[i], 1) else own[dims - rank(c) + i] for i in range(rank(c))))
            found.append(self.line(f"tl.where({at} < 0, {at} + {self.sizes.text(source.meta['val'].shape[d])}, {at})"))
        return self.value(source, (*found, *index[places[0] + dims :]))

    def do_slice_scatter(self, node: Node, index: Index) -> str:
        base, source = node.args[0], node.args[1]
        at = node.args[2] % rank(node) if len(node.args) > 2 else 0  # type: ignore[operator]
        start = self.place(node.args[3] or 0, node, at) if len(node.args) > 3 else "0"
        need(len(node.args) < 6 or node.args[5] == 1, "its step writes into every other element")
        moved = index[at] if start == "0" else f"({index[at]} - {start})"
        size = self.sizes.text(source.meta["val"].shape[at])  # type: ignore[union-attr]
        value = self.value(source, (*index[:at], moved, *index[at + 1 :]))
        return self.line(f"tl.where(({moved} >= 0) & ({moved} < {size}), {value}, {self.value(base, index)})")

    def do_select_scatter(self, node: Node, index: Index) -> str:
        at = node.args[2] % rank(node)  # type: ignore[operator]
        value = self.value(node.args[1], index[:at] + index[at + 1 :])
        return self.line(f"tl.where({index[at]} == {self.place(node.args[3], node, at)}, {value}, {self.value(node.args[0], index)})")

    def do_scatter_add(self, node: Node, index: Index) -> str:
        base, at, chosen, source = node.args[0], node.args[1] % rank(node), node.args[2], node.args[3]  # type: ignore[operator]
        size = chosen.meta["val"].shape[at]  # type: ignore[union-attr]
        token = "0" if same(size, 1) else self.token(self.free(index, 1)[0], size)
        own = (*index[:at], token, *index[at + 1 :])
        text = f"tl.where({self.value(chosen, own)} == {index[at]}, {self.value(source, own)}, 0.0)"
        made = self.line(text)
        if token != "0":
            made = self.over(made, [token], "sum", node, node.meta["val"].dtype)
        return self.line(f"{self.value(base, index)} + {made}")

    def do_full(self, node: Node, index: Index) -> str:
        value = node.meta["val"]
        fill = step_operators.fill_of(node)
        ones = ", ".join("1" for _ in range(self.positions + (self.lanes is not None)))
        return self.line(f"tl.full(({ones},), {self.value(fill, ())}, {step_operators.computed_type(value.dtype)})")

    do_zeros = do_ones = do_full_like = do_zeros_like = do_ones_like = do_new_zeros = do_new_full = do_scalar_tensor = do_new_ones = do_full
    do_empty = do_new_empty = do_empty_like = do_full

    def do_iota(self, node: Node, index: Index) -> str:
        start, step = node.kwargs.get("start", 0), node.kwargs.get("step", 1)
        text = f"({index[0]} + zero).to(tl.int64)"
        text = text if step == 1 else f"{text} * {self.value(step, ())}"
        return self.line(text if start == 0 else f"{text} + {self.value(start, ())}")

    def do__to_copy(self, node: Node, index: Index) -> str:
        source: Any = node.args[0]
        made = self.value(source, index)
        one, other = source.meta["val"].dtype, node.meta["val"].dtype
        if step_operators.computed_type(one) == step_operators.computed_type(other):
            return made
        return self.line(f"{made} != 0" if other == torch.bool else f"{made}.to({step_operators.computed_type(other)})")

    do_convert_element_type = do__to_copy

    def do_clone(self, node: Node, index: Index) -> str:
        return self.value(node.args[0], index)

    do_alias = do_detach = do_lift_fresh_copy = do_contiguous = do_clone


__all__ = ["FromMemory", "StepWriter", "TooFewPositions", "expression", "sympy"]
