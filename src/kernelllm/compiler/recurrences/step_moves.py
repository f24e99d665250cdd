"""Operators that move elements, as indices: what they read is asked for where their result's reader wants it."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from kernelllm.compiler.recurrences import step_operators
from kernelllm.compiler.recurrences.row_dimensions import groups, mixed_dims, own_positions, rank, same
from kernelllm.compiler.recurrences.step_graphs import need
from kernelllm.compiler.recurrences.step_sizes import StepSizes

Index = tuple[str, ...]


class MovingRules:
    """Rules by an operator's name, for a writer of steps."""

    sizes: StepSizes
    positions: int
    lanes: int | None
    joined: dict[str, tuple[tuple[str, ...], tuple[str, ...]]]
    """Sizes and indices that were joined to one index."""
    value: Any
    line: Any
    token: Any
    free: Any
    over: Any
    aligned: Any

    def do_permute(self, node: Any, index: Index) -> Any:
        order: Any = node.args[1]
        found = dict(zip([d % len(order) for d in order], index, strict=True))
        return self.value(node.args[0], tuple(found[d] for d in range(len(order))))

    def do_unsqueeze(self, node: Any, index: Index) -> Any:
        at = node.args[1] % rank(node)
        return self.value(node.args[0], index[:at] + index[at + 1 :])

    def do_expand(self, node: Any, index: Index) -> Any:
        return self.value(node.args[0], self.aligned(node.args[0], node, index))

    def do_view(self, node: Any, index: Index) -> Any:
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

    def do_select(self, node: Any, index: Index) -> Any:
        source: Any = node.args[0]
        at = node.args[1] % rank(source)
        return self.value(source, (*index[:at], self.place(node.args[2], source, at), *index[at:]))

    def place(self, number: Any, source: Node, dim: int) -> str:
        """An index that may count from the end."""
        size = source.meta["val"].shape[dim]
        if isinstance(number, int) and number < 0:
            return str(size + number) if isinstance(size, int) else f"({self.sizes.text(size)} - {-number})"
        return str(self.value(number, ()))

    def do_slice(self, node: Any, index: Index) -> Any:
        source: Any = node.args[0]
        at = self.dim_of(node) % rank(source)
        start: Any = node.args[2] if len(node.args) > 2 else 0
        step: Any = node.args[4] if len(node.args) > 4 else 1
        text = index[at] if step == 1 else f"{index[at]} * {step}"
        begins = "0" if start is None else self.place(start, source, at)
        moved = text if begins == "0" else f"({text} + {begins})"
        return self.value(source, (*index[:at], moved, *index[at + 1 :]))

    def dim_of(self, node: Node) -> int:
        return node.args[1] if len(node.args) > 1 else 0

    def do_flip(self, node: Any, index: Index) -> Any:
        dims = mixed_dims(node, "flip", rank(node))
        sizes = [self.sizes.text(n) for n in node.meta["val"].shape]
        return self.value(node.args[0], tuple(f"({sizes[d]} - 1 - {at})" if d in dims else at for d, at in enumerate(index)))

    def do_cat(self, node: Any, index: Index) -> Any:
        parts: Any = node.args[0]
        at = self.dim_of(node) % rank(node)
        if index[at].isdigit() and all(same(part.meta["val"].shape[at], 1) for part in parts):  # one of several that were stacked
            return self.value(parts[int(index[at])], (*index[:at], "0", *index[at + 1 :]))
        made, end = "", "0"
        for part in parts:
            size = self.sizes.text(part.meta["val"].shape[at])
            moved = index[at] if end == "0" else f"({index[at]} - {end})"
            value = self.value(part, (*index[:at], moved, *index[at + 1 :]))
            made = value if not made else self.line(f"tl.where({index[at]} < {end}, {made}, {value})")
            end = size if end == "0" else f"({end} + {size})"
        return made

    def do_constant_pad_nd(self, node: Any, index: Index) -> Any:
        source, pads = node.args[0], node.args[1]
        fill = node.args[2] if len(node.args) > 2 else 0
        found, tests = list(index), []
        for i in range(len(pads) // 2):
            d = rank(node) - 1 - i
            low, high = pads[2 * i], pads[2 * i + 1]
            if low != 0:
                found[d] = f"({index[d]} + {-low})" if isinstance(low, int) and low < 0 else f"({index[d]} - {self.value(low, ())})"
                tests.append(f"({found[d]} >= 0)")
            if high != 0:
                tests.append(f"({found[d]} < {self.sizes.text(source.meta['val'].shape[d])})")
        value = self.value(source, tuple(found))
        return self.line(f"tl.where({' & '.join(tests)}, {value}, {self.value(fill, ())})") if tests else value

    def do_gather(self, node: Any, index: Index) -> Any:
        source, at = node.args[0], node.args[1] % rank(node)
        chosen = self.value(node.args[2], index)
        return self.value(source, (*index[:at], chosen, *index[at + 1 :]))

    def do_embedding(self, node: Any, index: Index) -> Any:
        return self.value(node.args[0], (self.value(node.args[1], index[:-1]), index[-1]))

    def do_index(self, node: Any, index: Index) -> Any:
        source: Any = node.args[0]
        chosen: Any = list(node.args[1])
        places = [i for i, c in enumerate(chosen) if c is not None]
        need(places == list(range(places[0], places[-1] + 1)), "its step picks elements along dimensions that are apart")
        dims = max(rank(c) for c in chosen if c is not None)
        own = index[places[0] : places[0] + dims]
        found, ranges = list(index[: places[0]]), own_positions(node)
        for c, d in zip(chosen[places[0] :], places, strict=True):
            if d in ranges:
                found.append(index[ranges[d]])
                continue
            at = self.value(c, tuple("0" if same(c.meta["val"].shape[i], 1) else own[dims - rank(c) + i] for i in range(rank(c))))
            found.append(self.line(f"tl.where({at} < 0, {at} + {self.sizes.text(source.meta['val'].shape[d])}, {at})"))
        return self.value(source, (*found, *index[places[0] + dims :]))

    def do_slice_scatter(self, node: Any, index: Index) -> Any:
        base, source = node.args[0], node.args[1]
        at = node.args[2] % rank(node) if len(node.args) > 2 else 0
        start = self.place(node.args[3] or 0, node, at) if len(node.args) > 3 else "0"
        need(len(node.args) < 6 or node.args[5] == 1, "its step writes into every other element")
        moved = index[at] if start == "0" else f"({index[at]} - {start})"
        size = self.sizes.text(source.meta["val"].shape[at])
        value = self.value(source, (*index[:at], moved, *index[at + 1 :]))
        return self.line(f"tl.where(({moved} >= 0) & ({moved} < {size}), {value}, {self.value(base, index)})")

    def do_select_scatter(self, node: Any, index: Index) -> Any:
        at = node.args[2] % rank(node)
        value = self.value(node.args[1], index[:at] + index[at + 1 :])
        return self.line(f"tl.where({index[at]} == {self.place(node.args[3], node, at)}, {value}, {self.value(node.args[0], index)})")

    def do_scatter_add(self, node: Any, index: Index) -> Any:
        base, at, chosen, source = node.args[0], node.args[1] % rank(node), node.args[2], node.args[3]
        size = chosen.meta["val"].shape[at]
        token = "0" if same(size, 1) else self.token(self.free(index, 1)[0], size)
        own = (*index[:at], token, *index[at + 1 :])
        text = f"tl.where({self.value(chosen, own)} == {index[at]}, {self.value(source, own)}, 0.0)"
        made = self.line(text)
        if token != "0":
            made = self.over(made, [token], "sum", node, node.meta["val"].dtype)
        return self.line(f"{self.value(base, index)} + {made}")

    def do_full(self, node: Any, index: Index) -> Any:
        value = node.meta["val"]
        fill = step_operators.fill_of(node)
        ones = ", ".join("1" for _ in range(self.positions + (self.lanes is not None)))
        return self.line(f"tl.full(({ones},), {self.value(fill, ())}, {step_operators.computed_type(value.dtype)})")

    do_zeros = do_ones = do_full_like = do_zeros_like = do_ones_like = do_new_zeros = do_new_full = do_scalar_tensor = do_new_ones = do_full
    do_empty = do_new_empty = do_empty_like = do_full

    def do_iota(self, node: Any, index: Index) -> Any:
        start, step = node.kwargs.get("start", 0), node.kwargs.get("step", 1)
        text = f"({index[0]} + zero).to(tl.int64)"
        text = text if step == 1 else f"{text} * {self.value(step, ())}"
        return self.line(text if start == 0 else f"{text} + {self.value(start, ())}")

    def do__to_copy(self, node: Any, index: Index) -> Any:
        source: Any = node.args[0]
        made = self.value(source, index)
        one, other = source.meta["val"].dtype, node.meta["val"].dtype
        if step_operators.computed_type(one) == step_operators.computed_type(other):
            return made
        return self.line(f"{made} != 0" if other == torch.bool else f"{made}.to({step_operators.computed_type(other)})")

    do_convert_element_type = do__to_copy

    def do_clone(self, node: Any, index: Index) -> Any:
        return self.value(node.args[0], index)

    do_alias = do_detach = do_lift_fresh_copy = do_contiguous = do_clone
