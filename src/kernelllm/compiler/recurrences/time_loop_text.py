"""The text of a loop's operator: one kernel, a program for each row, that goes through all steps, and its host function."""

from __future__ import annotations

import textwrap
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from torch.fx import GraphModule, Node

from kernelllm.compiler.recurrences.row_dimensions import RowDimensions, expression, rank, same
from kernelllm.compiler.recurrences.step_graphs import need
from kernelllm.compiler.recurrences.step_sizes import StepSizes
from kernelllm.compiler.recurrences.step_writer import FromMemory, StepWriter, TooFewPositions

_MOST_POSITIONS = 4
_LANES = 128
"""Elements that a program has at least, where there are as many rows."""


@dataclass(frozen=True)
class TimeLoop:
    """What a loop's kernel is made of: hashable by its text."""

    kernel: str
    host: str
    inputs: int
    outputs: int
    known: frozenset[int]
    """What is carried, by its number, of which all steps are kept; of the rest the last one alone."""

    def text(self, name: str) -> str:
        """The definitions, the host function last."""
        return self.kernel.replace("{name}", name) + "\n\n" + self.host.replace("{name}", name)

    def schema(self) -> str:
        """Of the operator."""
        given = ", ".join(f"Tensor a{i}" for i in range(self.inputs))
        results = ", ".join(["Tensor"] * self.outputs)
        return f"({given}, SymInt steps) -> " + (f"({results})" if self.outputs > 1 else results)


def time_loop(
    step: GraphModule, carried: int, sliced: int, *, backwards: bool = False, known: Collection[int] | None = None
) -> TimeLoop:  # fmt: skip
    """The loop of a step's graph: its first inputs are carried, the next ones slices, the rest the same in every step.

    Its results are what is carried, and what is stacked. ``backwards``: from the last step to the first. ``known``: what is carried of
    which all steps are wanted; all of it without that.
    """
    rows = RowDimensions(step, carried)
    results: list[Any] = list(step.graph.output_node().args[0])
    need(all(isinstance(r, Node) for r in results), "a result of its step is no tensor")
    inputs = list(step.graph.find_nodes(op="placeholder"))
    sizes = StepSizes(_sources(inputs, carried, sliced))
    positions, stored, lanes = 1, set[int](), None
    for _ in range(16):
        writer = StepWriter(step, (carried, sliced), rows, sizes, positions, stored, lanes)
        try:
            news = [writer.value(r, writer.own_index(r)) for r in results]
        except FromMemory as found:
            stored = stored | {found.number}
            continue
        except TooFewPositions:
            positions += 1
            need(positions <= _MOST_POSITIONS, "its step has too many dimensions")
            continue
        shared = _shared_rows(rows, [*inputs[:carried], *results])
        if lanes is None and shared and writer.largest * 4 <= _LANES:
            lanes = shared[-1]
            continue
        kept = {*(range(carried) if known is None else known), *stored}
        return _Texts(writer, results, news, backwards, kept).loop()
    need(False, "its step was not written")
    raise AssertionError


def _shared_rows(rows: RowDimensions, nodes: list[Any]) -> list[int]:
    """Rows that all tensors have: a program may hold several of those."""
    had = [{rows.row(node, d) for d in range(rank(node))} for node in nodes]
    return [r for r in range(len(rows.rows)) if all(r in own for own in had)]


def _sources(inputs: list[Node], carried: int, sliced: int) -> dict[Any, str]:
    """Where the host reads each size that a tensor shows."""
    found: dict[Any, str] = {}
    for i, node in enumerate(inputs):
        for d in range(rank(node)):
            size = expression(node.meta["val"].shape[d])
            found.setdefault(size, f"a{i}.shape[{d + (carried <= i < carried + sliced)}]")
    return found


class _Texts:
    def __init__(self, writer: StepWriter, results: list[Node], news: list[str], backwards: bool, known: set[int]) -> None:
        self.writer, self.results, self.news, self.backwards, self.known = writer, results, news, backwards, known
        self.carried, self.sliced, self.inputs = writer.carried, writer.sliced, writer.inputs
        self.rank = writer.positions + (writer.lanes is not None)
        tile = writer.largest
        self.lanes = 1
        if writer.lanes is not None:
            size = next(s for s in self._row_hints(writer.lanes))
            self.lanes = max(min(_LANES // tile, 1 << max(size - 1, 0).bit_length()), 1)
        self.warps = max(1, min(8, tile * self.lanes // 256))
        self.arguments: list[tuple[str, str]] = []
        """The kernel's arguments, with what the host passes."""

    def _row_places(self, row: int) -> list[tuple[int, int]]:
        pairs = [(i, d) for i, node in enumerate(self.inputs[: self.carried]) for d in range(rank(node))]
        return [(i, d) for i, d in pairs if self.writer.rows.row(self.inputs[i], d) == row]

    def _row_hints(self, row: int) -> list[int]:
        return [self.writer.sizes.hint(self.inputs[i].meta["val"].shape[d]) for i, d in self._row_places(row)]

    def loop(self) -> TimeLoop:
        outs = self.results[self.carried :]
        names = [f"a{i}" for i in range(len(self.inputs))]
        counts = ["steps + 1" if i in self.known else "1" for i in range(self.carried)]
        makes = [f"h{i} = torch.empty(({n}, *a{i}.shape), device=a{i}.device, dtype=a{i}.dtype)" for i, n in enumerate(counts)]
        for k, node in enumerate(outs):
            makes.append(f"y{k} = torch.empty({self._shape(node)}, device=a0.device, dtype={node.meta['val'].dtype})")
        given = [f"h{i}" for i in range(self.carried)] + [f"y{k}" for k in range(len(outs))]
        kernel = self._kernel()
        passed = textwrap.fill(", ".join(value for _, value in self.arguments) + f", num_warps={self.warps},", 110, break_long_words=False)
        grid = " * ".join(self._grid()) or "1"
        host = "\n".join([
            f"def {{name}}({', '.join(names)}, steps):",
            f'    """{self._document()}"""',
            *(f"    {m}" for m in makes),
            f"    {{name}}_kernel[({grid},)](",
            textwrap.indent(passed, "        "),
            "    )",
            f"    return {', '.join(given)}",
        ])  # fmt: skip
        return TimeLoop(kernel, host + "\n", len(self.inputs), len(given), frozenset(self.known))

    def _document(self) -> str:
        way = "from the last step to the first" if self.backwards else "from step to step"
        made = ", and what each step makes" if len(self.news) > self.carried else ""
        kept = "before all steps and behind each" if self.known else "behind the last one"
        return f"What goes {way}, {kept}{made}."

    def _shape(self, node: Node) -> str:
        sizes = [self.writer.sizes.host(n) for n in node.meta["val"].shape]
        return f"({', '.join(['steps', *sizes])},)"

    def _grid(self) -> list[str]:
        found = []
        for row in range(len(self.writer.rows.rows)):
            i, d = self._row_places(row)[0]
            size = f"a{i}.shape[{d}]"
            found.append(f"triton.cdiv({size}, {self.lanes})" if row == self.writer.lanes else size)
        return found

    def _kernel(self) -> str:
        writer = self.writer
        start = self._starts()
        inside = [*writer.body]
        stores: list[str] = []
        own = [writer.own_index(node) for node in self.inputs[: self.carried]]
        outs = self.results[self.carried :]
        sign = "-" if self.backwards else "+"
        moved = []
        for i in range(self.carried):
            self._check(self.inputs[i], self.results[i])
            if i in writer.stored:
                stores.append(self._store(f"h{i}", f"h{i}_ptr {sign} h{i}_step", own[i], self.news[i]))
            else:
                moved.append((i, self._as_state(i, own[i])))
        inside += [f"next_{i} = {text}" for i, text in moved]
        inside += [self._store(f"h{i}", f"h{i}_ptr {sign} h{i}_step", own[i], f"next_{i}") for i, _ in moved if i in self.known]
        inside += stores
        for k, node in enumerate(outs):
            inside.append(self._store(f"y{k}", f"y{k}_ptr", writer.own_index(node), self.news[self.carried + k]))
        inside += [f"state_{i} = next_{i}" for i, _ in moved]
        steps = [f"h{i}" for i in sorted(self.known)] + [f"x{j}" for j in range(self.sliced)] + [f"y{k}" for k in range(len(outs))]
        inside += [f"{n}_ptr {sign}= {n}_step" for n in steps]
        inside += ["tl.debug_barrier()"] if writer.stored else []
        begin = self._initial(own)
        head = [*self._positions(), *start, *begin, *writer.ahead]
        last = [self._store(f"h{i}", f"h{i}_ptr", own[i], f"state_{i}") for i, _ in moved if i not in self.known]
        self._collect(outs)
        lines = [*head, "for _ in range(0, steps):", *(f"    {s}" for s in inside), *last]
        names = textwrap.fill(", ".join(name for name, _ in self.arguments), 100, break_long_words=False)
        arguments = textwrap.indent(names, "    ").strip()
        top = f'@triton.jit\ndef {{name}}_kernel({arguments}):\n    """{self._document()} A program for each row."""\n'
        return top + textwrap.indent("\n".join(lines), "    ") + "\n"

    def _check(self, given: Node, made: Node) -> None:
        one, other = given.meta["val"], made.meta["val"]
        alike = one.dtype == other.dtype and one.dim() == other.dim()
        need(alike and all(same(n, m) for n, m in zip(one.shape, other.shape, strict=True)), "what it carries changes its form")

    def _as_state(self, number: int, own: tuple[str, ...]) -> str:
        """What a step makes of a state, in the form in which the state is held."""
        from kernelllm.compiler.recurrences.step_operators import computed_type

        tokens = set().union(*(self.writer.tokens_in(at) for at in own))
        mask = " & ".join(self.writer.inside(tokens)) or "zero == 0"
        return f"tl.where({mask}, {self.news[number]}, 0).to({computed_type(self.inputs[number].meta['val'].dtype)})"

    def _place(self, name: str, own: tuple[str, ...]) -> tuple[str, str]:
        tokens = set().union(*(self.writer.tokens_in(at) for at in own))
        offsets = [f"{at} * {self.writer.stride(name, d)}" for d, at in enumerate(own) if at != "0"]
        return " + ".join([*offsets, "zero"]), " & ".join(self.writer.inside(tokens)) or "zero == 0"

    def _store(self, name: str, pointer: str, own: tuple[str, ...], value: str) -> str:
        offset, mask = self._place(name, own)
        return f"tl.store({pointer} + ({offset}), {value}, mask={mask})"

    def _starts(self) -> list[str]:
        """Pointers at the first step."""
        if not self.backwards:
            return []
        outs = len(self.results) - self.carried
        found = [f"h{i}_ptr += steps * h{i}_step" for i in range(self.carried)]
        rest = [*(f"x{j}" for j in range(self.sliced)), *(f"y{k}" for k in range(outs))]
        return found + [f"{n}_ptr += (steps - 1) * {n}_step" for n in rest]

    def _initial(self, own: list[tuple[str, ...]]) -> list[str]:
        from kernelllm.compiler.recurrences.step_operators import as_computed

        lines = []
        for i in range(self.carried):
            offset, mask = self._place(f"c{i}", own[i])
            load = as_computed(f"tl.load(c{i}_ptr + ({offset}), mask={mask}, other=0)", self.inputs[i].meta["val"].dtype)
            lines.append(f"state_{i} = {load}")
            lines += [self._store(f"h{i}", f"h{i}_ptr", own[i], f"state_{i}")] if i in self.known else []
        return [*lines, *(["tl.debug_barrier()"] if self.writer.stored else [])]

    def _positions(self) -> list[str]:
        """Rows of the program, and indices along the positions of its block."""
        writer, lines, pid = self.writer, [], "pid"
        order = [r for r in range(len(writer.rows.rows)) if r != writer.lanes]
        if writer.rows.rows:
            lines.append("pid = tl.program_id(0).to(tl.int64)")
        if writer.lanes is not None:
            shape = "[" + ", ".join(["None"] * writer.positions + [":"]) + "]"
            row = f"rows_{writer.lanes}"
            lanes = f"tl.arange(0, {self.lanes})"
            lines.append(f"row_{writer.lanes} = pid % tl.cdiv({row}, {self.lanes}) * {self.lanes} + {lanes}{shape}")
            pid = f"pid // tl.cdiv({row}, {self.lanes})"
        for at, number in enumerate(reversed(order)):
            last = at == len(order) - 1
            lines.append(f"row_{number} = {pid}" if last else f"row_{number} = {pid} % rows_{number}")
            pid = f"{pid} // rows_{number}"
        lines.append(f"zero = tl.zeros(({', '.join(['1'] * self.rank)},), dtype=tl.int32)")
        for name, (position, size) in sorted(writer.used.items()):
            text = writer.sizes.text(size)
            block = f"block_{text}" if text in writer.sizes.names.values() else str(1 << max(int(text) - 1, 0).bit_length())
            places = ", ".join(":" if p == position else "None" for p in range(self.rank))
            lines.append(f"{name} = tl.arange(0, {block})[{places}]" if self.rank > 1 else f"{name} = tl.arange(0, {block})")
        return lines

    def _collect(self, outs: list[Node]) -> None:
        """The kernel's arguments."""
        writer = self.writer
        add = self.arguments.append
        for i in range(self.carried):
            add((f"c{i}_ptr", f"a{i}"))
            add((f"h{i}_ptr", f"h{i}"))
        words = "\n".join([*writer.body, *writer.ahead])
        last = len(self.inputs) - self.carried
        read = [j for j in range(last) if f"x{j}_ptr" in words]
        for j in range(last):
            if j in read or j < self.sliced:
                add((f"x{j}_ptr", f"a{self.carried + j}"))
        for k in range(len(outs)):
            add((f"y{k}_ptr", f"y{k}"))
        add(("steps", "steps"))
        for row in range(len(writer.rows.rows)):
            i, d = self._row_places(row)[0]
            add((f"rows_{row}", f"a{i}.shape[{d}]"))
        for i in sorted(self.known):
            add((f"h{i}_step", f"h{i}.stride(0)"))
        for j in range(self.sliced):
            add((f"x{j}_step", f"a{self.carried + j}.stride(0)"))
        for k in range(len(outs)):
            add((f"y{k}_step", f"y{k}.stride(0)"))
        for stride in writer.strides:
            name, _, dim = stride.partition("_stride_")
            number, kind = int(name[1:]), name[0]
            host = {"c": f"a{number}", "h": f"h{number}", "y": f"y{number}", "x": f"a{self.carried + number}"}[kind]
            behind = kind in "hy" or (kind == "x" and number < self.sliced)
            add((stride, f"{host}.stride({int(dim) + behind})"))
        for found, size in writer.sizes.names.items():
            add((f"{size}: tl.constexpr", writer.sizes.source(found)))
            add((f"block_{size}: tl.constexpr", f"triton.next_power_of_2({writer.sizes.source(found)})"))
