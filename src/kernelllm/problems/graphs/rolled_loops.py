"""Repeated lines of a forward become loops again: in a graph, loops are unrolled.

Steps are alike but for the numbers that they count by, for what they make themselves, and for what the step before made.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.fx.experimental.symbolic_shapes import statically_known_true

from kernelllm.core.text import syntax_tree
from kernelllm.problems.graphs import index_text
from kernelllm.problems.graphs.repeated_lines import FEWEST, SAVED, TextLine, places, runs, with_slots

_TRIED, _COMPARED = 40, 200_000
"""Runs of lines that are looked at, and lines of the loops of one run that are held against each other."""
_NEUTRAL = frozenset(f"= {ast.dump(ast.BinOp(ast.Name('_', ast.Load()), by(), ast.Constant(0)))}" for by in (ast.Add, ast.Sub))
"""Adding a number, or taking it away: with 0, nothing is left of it."""
_ACTS = re.compile(r"attr='(\w+_|\w*(rand|normal|bernoulli|dropout|multinomial|poisson|exponential|geometric)\w*)'|keyword\(arg='out'")
"""What writes into its arguments, or draws numbers."""
_OF_SIZES = re.compile(
    r"^= (BinOp|UnaryOp)\((?!.*(Call|Subscript)\()|^= Call\(func=Attribute\(value=Name\(id='torch', ctx=Load\(\)\), attr='sym_"
)
"""Arithmetic, which may go on."""
Shapes = Mapping[str, Sequence[Any]]


def rolled(lines: list[str], shapes: Shapes) -> list[str]:
    """The lines with loops. ``shapes``: those of tensors by their names."""
    if len(lines) < FEWEST + SAVED:
        return lines
    body = [TextLine(text) for text in lines]
    found = False
    while loop := _first_loop(body, shapes):
        body, found = loop, True
    return index_text.with_plain_names([text for line in body for text in line.lines]) if found else lines


def _first_loop(body: list[TextLine], shapes: Shapes) -> list[TextLine] | None:
    """The body with one loop more; None where there is none."""
    tried: list[tuple[int, int]] = []
    for begin, period, end in runs([line.key for line in body])[:_TRIED]:
        if any(period % other == 0 and begin < stop for stop, other in tried):
            continue  # several steps as one
        tried.append((end, period))
        loops = [_RolledLoop.at(body, start, period, steps, shapes) for start, steps in places(begin, period, end)]
        alike = sorted((loop for loop in loops if loop is not None), key=_RolledLoop.oddity)
        whole = (found for loop in alike if (found := loop.whole()) is not None)
        if fitting := list(itertools.islice(whole, max(_COMPARED // (end - begin), 1))):
            return min(fitting, key=_RolledLoop.oddity).written()
    return None


@dataclass
class _Carried:
    """What a step reads of the step before; kept by the place of the line that makes it."""

    first: str
    """What the first step reads."""
    late: bool = False
    """Whether a line behind that one reads it."""


Row = list[TextLine]


class _RolledLoop:
    """Lines from ``start`` to ``end`` as a loop, of which each row is a step."""

    def __init__(self, body: list[TextLine], start: int, end: int, rows: list[Row], shapes: Shapes) -> None:
        self.body, self.start, self.end, self.rows, self.shapes = body, start, end, rows, shapes
        self.before, self.after = body[:start], body[end:]
        self.steps, self.period = len(rows), len(rows[0])
        self.made: dict[str, tuple[int, int]] = {
            line.target: (step, place) for step, row in enumerate(self.rows) for place, line in enumerate(row) if line.target
        }
        self.carried: dict[int, _Carried] = {}
        self.texts: list[list[str | tuple[int, int]]] = []
        """For each line of a step, its slots: text, or where a number begins and by how much it goes on."""
        self.lists: dict[int, str] = {}
        """Lines whose results of all steps are read as a list, to its name."""

    @classmethod
    def at(cls, body: list[TextLine], start: int, period: int, steps: int, shapes: Shapes) -> _RolledLoop | None:
        """The loop of so many steps of ``period`` lines from a line on; None where those are no steps of one."""
        end = start + steps * period
        loop = cls(body, start, end, [body[at : at + period] for at in range(start, end, period)], shapes)
        return loop if loop._alike() else None

    def whole(self) -> _RolledLoop | None:
        """The loop with what is left of one more step before it and behind it; None where others read what a loop does not keep."""
        loop = self._with_more(first=True)._with_more(first=False)
        return loop if loop._read_later() else None

    def oddity(self) -> tuple[int, int, int, int]:
        """What is least of the loop that reads best: lines that it leaves out, numbers that it counts from, and what it carries."""
        begins = {slot[0] for slots in self.texts for slot in slots if isinstance(slot, tuple) and slot[1]}
        return self.start - self.end, len(begins), len(self.carried), self.start

    def _alike(self) -> bool:
        """Whether the rows are steps of one loop."""
        for place in range(self.period):
            slots = list(zip(*(row[place].slots for row in self.rows), strict=True))
            texts = [self._text(place, values) for values in slots]
            if None in texts:
                return False
            self.texts.append(texts)  # type: ignore[arg-type]
        return True

    def _text(self, place: int, values: tuple[Any, ...]) -> str | tuple[int, int] | None:
        if isinstance(values[0], int):
            by = values[1] - values[0]
            return (values[0], by) if all(v == values[0] + by * step for step, v in enumerate(values)) else None
        found = [self.made.get(name) for name in values]
        if found[-1] is None:  # of outside
            return values[0] if len(set(values)) == 1 else None
        at = found[-1][1]
        if found == [(step, at) for step in range(self.steps)]:
            return self.rows[0][at].target if at < place else None
        if found[1:] != [(step, at) for step in range(self.steps - 1)] or found[0] is not None:
            return None
        carried = self.carried.setdefault(at, _Carried(values[0]))
        carried.late |= place > at
        return f"?{at}" if carried.first == values[0] else None

    def _with_more(self, *, first: bool) -> _RolledLoop:
        """This loop with a step more, of which less is left: the last one makes nothing for another, the first one adds 0 to nothing."""
        for count in range(self.period, self.period // 2 - 1, -1):
            lines = self.before[-count:] if first else self.after[:count]
            row = self._row(lines, first=first) if len(lines) == count else None
            if row is not None:
                start, end = (self.start - count, self.end) if first else (self.start, self.end + count)
                loop = _RolledLoop(self.body, start, end, [row, *self.rows] if first else [*self.rows, row], self.shapes)
                if loop._alike():
                    return loop
        return self

    def _row(self, lines: list[TextLine], *, first: bool) -> Row | None:
        """The step before the first or behind the last, whole, if these lines are all that is left of it."""
        step = -1 if first else self.steps
        row: Row = []
        names: dict[str, str] = {}
        inits: dict[str, str] = {}
        rest = list(lines)
        for place, slots in enumerate(self.texts):
            known = self.rows[0][place]
            line = rest[0] if rest else None
            if line is not None and line.key == known.key and self._same(slots, line.slots, step, names, inits):
                rest.pop(0)
                row.append(TextLine(with_slots(line, [names.get(f"={v}", v) for v in line.slots], line.target)))
                names[known.target] = line.target
                continue
            wanted = [self._expected(slot, step, names) for slot in slots]
            if None in wanted or not (known.key in _NEUTRAL and wanted[1] == 0 if first else self._idle(known, slots, wanted)):
                return None
            target = f"{known.target}_{'first' if first else 'last'}"
            row.append(TextLine(with_slots(known, wanted, target)))
            names[known.target] = str(wanted[0]) if first else target
            names |= {f"={wanted[0]}": target} if first else {}
        if rest or (first and any(names.get(self.rows[0][at].target) != c.first for at, c in self.carried.items())):
            return None
        return row

    def _idle(self, line: TextLine, slots: list[str | tuple[int, int]], wanted: list[Any]) -> bool:
        """Whether a line does nothing but make its result, and can do so in a step more."""
        if not line.target or _ACTS.search(line.key):
            return False
        if not any(isinstance(slot, tuple) and slot[1] for slot in slots) or _OF_SIZES.search(line.key):
            return True
        if not line.selects() or not isinstance(wanted[1], int) or not isinstance(wanted[2], int):
            return False
        shape = self.shapes.get(wanted[0], ())
        return 0 <= wanted[1] < len(shape) and wanted[2] >= 0 and bool(statically_known_true(shape[wanted[1]] > wanted[2]))

    def _same(
        self, slots: list[str | tuple[int, int]], given: list[str | int], step: int, names: dict[str, str], inits: dict[str, str]
    ) -> bool:  # fmt: skip
        for slot, value in zip(slots, given, strict=True):
            if isinstance(slot, str) and slot.startswith("?") and step < 0:
                if inits.setdefault(slot, str(value)) != value:
                    return False
            elif self._expected(slot, step, names) != value:
                return False
        return True

    def _expected(self, slot: str | tuple[int, int], step: int, names: dict[str, str]) -> str | int | None:
        """What stands at a slot in another step; None where that is not known."""
        if isinstance(slot, tuple):
            return slot[0] + slot[1] * step
        if slot.startswith("?"):
            return self.rows[-1][int(slot[1:])].target if step > 0 else None
        return names.get(slot) if slot in self.made else slot

    def _read_later(self) -> bool:
        """Whether what is read behind the loop is of the last step, or a list of all steps."""
        wanted = {place: [row[place].target for row in self.rows] for place in range(self.period)}
        for line in self.after:
            names = [name for name in line.reads if name in self.made]
            while names:
                step, place = self.made[names[0]]
                if names[: self.steps] == wanted[place] and ", ".join(wanted[place]) in line.text:
                    self.lists[place] = f"{wanted[place][0]}_steps"
                    names = names[self.steps :]
                elif step == self.steps - 1:
                    names = names[1:]
                else:
                    return False
        return True

    def written(self) -> list[TextLine]:
        """The whole body with the loop."""
        counter = self._counter()
        first, by, text, over = self._range()
        names = {at: f"{self.rows[0][at].target}_before" if c.late else self.rows[0][at].target for at, c in self.carried.items()}
        inner: list[str] = []
        for place, slots in enumerate(self.texts):
            line = self.rows[0][place]
            inner.append(with_slots(line, [self._filled(slot, names, counter, first, by) for slot in slots], line.target))
            if place in self.lists:
                inner.append(f"{self.lists[place]}.append({line.target})")
        inner += [f"{names[at]} = {self.rows[0][at].target}" for at, c in self.carried.items() if c.late]
        kept = {self.rows[-1][at].target for at in range(self.period)} & {n for line in self.after for n in line.reads}
        inner = index_text.with_indices(inner, {self.rows[0][self.made[n][1]].target for n in kept} | set(names.values()))
        begins = [f"{names[at]} = {c.first}" for at, c in self.carried.items() if names[at] != c.first]
        begins += [f"{name} = []" for name in self.lists.values()]
        head = f"for {counter if text else '_'} in range({over}):"
        loop = [head, *(f"    {line}" for line in inner)]
        return [*self.before, *map(TextLine, begins), TextLine("\n".join(loop), loop), *self._renamed()]

    def _range(self) -> tuple[int, int, bool, str]:
        """Where the counter begins and by how much it goes on, whether anything counts, and the arguments of ``range``."""
        counted = [slot for slots in self.texts for slot in slots if isinstance(slot, tuple) and slot[1]]
        if not counted:
            return 0, 1, False, str(self.steps)
        first, by = max(counted, key=lambda slot: (counted.count(slot), -abs(slot[1])))
        if by < 0 or any(other % by for _, other in counted):
            first, by = 0, 1
        if (first, by) == (0, 1):
            return 0, 1, True, self._dimension() or str(self.steps)
        stop = first + by * (self.steps - 1) + 1
        return first, by, True, f"{first}, {stop}" + (f", {by}" if by > 1 else "")

    def _dimension(self) -> str:
        """``x.shape[dim]`` of a tensor of outside of which each step takes its own place, where that is the number of steps."""
        for line, slots in zip(self.rows[0], self.texts, strict=True):
            if not line.selects() or slots[2] != (0, 1) or not isinstance(slots[1], tuple) or slots[0] in self.made:
                continue
            name, dim = str(slots[0]), slots[1][0]
            if _is_length(self.shapes.get(name, ()), dim, self.steps):
                return f"{name}.shape[{dim}]"
        return ""

    def _filled(self, slot: str | tuple[int, int], names: dict[int, str], counter: str, first: int, by: int) -> str:
        if isinstance(slot, str):
            return names[int(slot[1:])] if slot.startswith("?") else slot
        if not slot[1]:
            return str(slot[0])
        times = slot[1] // by
        rest = slot[0] - times * first
        if times == -1:
            return f"{rest} - {counter}"
        text = counter if times == 1 else f"{times} * {counter}"
        return text if not rest else f"{text} {'+' if rest > 0 else '-'} {abs(rest)}"

    def _counter(self) -> str:
        taken = {name for line in self.body for name in (line.target, *line.slots)}
        return next(name for name in ("i", "j", "step", "loop_step", "counter") if name not in taken)

    def _renamed(self) -> list[TextLine]:
        """What is behind the loop, by the loop's names."""
        last = {row.target: self.rows[0][place].target for place, row in enumerate(self.rows[-1]) if row.target}
        found = []
        for line in self.after:
            for place, name in self.lists.items():
                some = ", ".join(row[place].target for row in self.rows)
                if some in line.text:
                    lines = [t.replace(f"[{some}]", name).replace(some, f"*{name}") for t in line.lines]
                    line = TextLine("\n".join(lines), lines)
            if not last.keys().isdisjoint(line.reads):
                text = ast.unparse(_NamedAsInLoop(last).visit(syntax_tree(line.text)))
                line = TextLine(text, text.split("\n"))
            found.append(line)
        return found


def _is_length(shape: Sequence[Any], dim: int, steps: int) -> bool:
    """Whether a dimension has so many places, not by chance."""
    return dim < len(shape) and bool(statically_known_true(shape[dim] == steps))


class _NamedAsInLoop(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> Any:
        return ast.Name(self.names.get(node.id, node.id), node.ctx)


__all__ = ["rolled"]
