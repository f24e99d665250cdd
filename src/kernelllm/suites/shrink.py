"""Smaller sizes at which a problem still is the same problem.

Nothing here knows any problem. Each constant is tried: does it set a size at all, must it be a multiple of something, does it only
work when others move with it? Then the largest sizes are reduced until a dry run (:mod:`kernelllm.suites.trace`) stays within
the budgets, and the result is confirmed by running the reference for real. Relations survive because every step is a run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from kernelllm.core.errors import ProblemError
from kernelllm.core.types import Problem, SizeSet
from kernelllm.suites import confirm, sizes
from kernelllm.suites.instance import Instance
from kernelllm.suites.trace import Trace, Tracer, tensors

log = logging.getLogger(__name__)

ELEMENTS = 50_000
FLOPS = 30_000_000
WORK = 1_000_000
SECONDS = 0.2
LIMITED_FLOPS = 8 * FLOPS
"""How far a set may grow for the sake of a well conditioned output, where the first one is not."""
PATIENCE = 3.0
"""Seconds to spend on looking for a better conditioned set."""
FLOORS = ((4, 16), (2, 8), (2, 4))
"""Stages of how far sizes may fall, leading (batch-like) dimensions and others: the next stage is only for what stays over budget."""
SMALL = 8
"""Constants up to this are kernel sizes, strides, numbers of layers or heads as often as sizes: they are left alone."""
STRUCTURAL_OPS = 1_500
"""Constants that change the number of operators (layers, unrolled time steps) are reduced only beyond so many operators."""

Slot = tuple[str, tuple[int, ...]]
Sizes = dict[Slot, int]


@dataclass
class Group:
    """Slots that move together: when the group's factor is r, a slot of exponent e moves by r ** e."""

    slots: dict[Slot, int]
    leading: bool = False
    """Sets only first dimensions of inputs: a batch, or rows."""
    structural: bool = False
    step: int = 1
    """Values must be multiples of this."""
    coupled: tuple[Slot, ...] = ()
    """Slots whose value is ``step``: the number of groups or heads that the width is divided by."""

    @property
    def head(self) -> Slot:
        """The slot that stands for the group."""
        return next(iter(self.slots))


@dataclass
class Search:
    """The state of one problem's search."""

    problem: Problem
    tracer: Tracer
    original: Sizes
    start: Sizes
    """Where trials begin: the original sizes, or fewer time steps where the original run was too long to be followed."""
    base: Trace
    """The run at ``start``."""
    elements: int
    groups: list[Group] = field(default_factory=list)

    def overrides(self, values: Sizes) -> dict[str, Any]:
        """The constants to override for these slot values: only those that differ from the original."""
        known = sizes.constants(self.problem)
        changed: dict[str, Any] = {}
        for (name, path), value in values.items():
            if value != self.original[(name, path)]:
                changed[name] = _put(changed.get(name, known[name]), path, value)
        return changed

    def run(self, values: Sizes) -> Trace | None:
        """A dry run; None where the problem does not work at these sizes or a dimension has fallen to 1 that was more."""
        trace = self.tracer.works(self.overrides(values))
        return None if trace is None or self._collapsed(trace) else trace

    def over(self, trace: Trace) -> float:
        """How many times over its budgets a run is; at most 1 means within."""
        return max(trace.largest / self.elements, trace.flops / FLOPS, trace.work / WORK, 0.0 if trace.ran else 50.0)

    def _collapsed(self, trace: Trace) -> bool:
        if len(trace.shapes) == len(self.base.shapes) and trace.ran and self.base.ran:
            pairs = zip((*trace.inputs, *trace.shapes), (*self.base.inputs, *self.base.shapes), strict=False)
        else:
            pairs = zip(trace.inputs, self.base.inputs, strict=False)
        return any(len(a) == len(b) and any(x <= 1 < y for x, y in zip(a, b, strict=True)) for a, b in pairs)


@lru_cache(maxsize=512)
def _shrunk(problem: Problem, count: int, budget_elements: int, budget_s: float) -> tuple[tuple[tuple[str, Any], ...], ...]:
    found = _search(problem, count, budget_elements, budget_s)
    return tuple(tuple(overrides.items()) for overrides in found)


def shrunk(problem: Problem, *, count: int = 2, budget_elements: int = ELEMENTS, budget_s: float = SECONDS) -> list[dict[str, Any]]:
    """Up to ``count`` different sets of constants for :class:`Instance`, small enough for a CPU, each confirmed by a real run.

    The aim is at most ``budget_elements`` elements in the largest tensor, 30 MFLOP and ``budget_s`` seconds a forward; a model
    with widths in its code may stay above it. The first set is the smallest found, the next ones differ from it in every size
    that can differ, with odd numbers where the problem works with them. ``{}`` stands for the problem's own sizes, where
    these are small already. Fewer sets come back where fewer work. Raises ProblemError where the reference works at no size.
    """
    return [dict(items) for items in _shrunk(problem, count, budget_elements, budget_s)]


def describe(problem: Problem, overrides: Mapping[str, Any]) -> SizeSet:
    """What was changed and the inputs that result, without drawing them. The label is ``original`` or ``shrunk``."""
    known = sizes.constants(problem)
    changed = {name: (known.get(name), value) for name, value in overrides.items()}
    return SizeSet(label="shrunk" if overrides else "original", changed=changed, inputs=_input_texts(problem, overrides))


def _input_texts(problem: Problem, overrides: Mapping[str, Any]) -> tuple[str, ...]:
    import torch

    instance = Instance(problem, overrides)
    try:
        with torch.device("meta"):
            values = instance.inputs(0)
    except ProblemError:
        values = instance.inputs(0)
    return tuple(input_text(value) for value in values)


def input_text(value: Any) -> str:
    """``float32[8, 128]`` for a tensor, the repr (shortened) of anything else."""
    import torch

    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, list | tuple) and any(True for _ in tensors(value)):
        return f"({', '.join(input_text(v) for v in value)})"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _search(problem: Problem, count: int, budget_elements: int, budget_s: float) -> list[dict[str, Any]]:
    tracer = Tracer(problem)
    base = tracer.trace({})
    original = dict(_slots(sizes.constants(problem)))
    search = Search(problem, tracer, original, original, base, budget_elements)
    if not base.ran:
        _shorten(search)
    search.groups = classify(search)
    grade: Callable[[Sizes], int] = lambda values: confirm.grade(problem, search.overrides(values), budget_s)
    first, reached = _confirmed_first(search, _reduce(search, dict(search.start)), grade)
    if reached == confirm.FAILS:
        raise ProblemError(f"The problem's reference fails at every size tried, such as {search.overrides(first) or 'its own'}.")
    found = [first]
    for number in range(1, count):
        values = _different(search, found, number, lambda values: grade(values) >= reached)
        if values is None:
            break
        found.append(values)
    log.debug("%s: %d dry runs by %s", problem.name, tracer.runs, tracer._ways[0])
    return [search.overrides(values) for values in found]


def _shorten(search: Search) -> None:
    """Begin at fewer time steps, or smaller tensors, where the original run cannot be followed to its end."""
    for slot, value in search.original.items():
        if value >= 64:
            values = {**search.original, slot: max(8, value // 32)}
            trace = search.tracer.works(search.overrides(values))
            if trace is not None and trace.ran:
                search.start, search.base = values, trace
                return


def classify(search: Search) -> list[Group]:
    """Try each slot alone, then those that do not move alone with others. Slots that change nothing are left out."""
    groups: list[Group] = []
    stuck: list[Slot] = []
    for slot, value in search.start.items():
        if value < 2:
            continue
        down = [value // 2, value // 3, value * 3 // 4, value - 1] if value > SMALL else [value - 1, value + 1]
        trace = next((t for v in down if v >= 2 and (t := search.tracer.works(search.overrides({**search.start, slot: v})))), None)
        if trace is None:
            stuck.append(slot)
        elif trace != search.base or not search.base.ran:
            group = Group({slot: 1}, leading=_leading(search.base, trace), structural=len(trace.shapes) != len(search.base.shapes))
            if value > SMALL or group.leading:
                groups.append(group)
    groups += _tied(search, stuck)
    for group in groups:
        _find_step(search, group)
    return groups


def _tied(search: Search, stuck: list[Slot]) -> list[Group]:
    """Groups of stuck slots that work when they move together, by equal or squared factors."""
    groups: list[Group] = []
    left = [s for s in stuck if search.start[s] > SMALL]
    while left:
        slot = left.pop(0)
        for members in _partners(search, slot, left):
            values = {s: search.start[s] // 2**e for s, e in members.items()}
            if min(values.values()) < 2:
                continue
            trace = search.tracer.works(search.overrides({**search.start, **values}))
            if trace is not None:
                groups.append(Group(members, structural=len(trace.shapes) != len(search.base.shapes)))
                left = [s for s in left if s not in members]
                break
    return groups


def _partners(search: Search, slot: Slot, others: list[Slot]) -> list[dict[Slot, int]]:
    """Candidate groups around a slot, the most natural first: equal values, pairs, squares, all."""
    equal = [o for o in others if search.start[o] == search.start[slot]]
    free = [s for s, v in search.start.items() if v > SMALL and s != slot and s not in others]
    trials: list[dict[Slot, int]] = []
    if equal:
        trials.append({slot: 1} | dict.fromkeys(equal, 1))
    trials += [{slot: 1, o: 1} for o in others]
    trials += [{slot: 1, o: 2} for o in others] + [{slot: 2, o: 1} for o in others]
    trials += [{slot: 1, a: 1, b: 1} for i, a in enumerate(others) for b in others[i + 1 :]][:20]
    trials += [{slot: 2, a: 1, b: 1} for i, a in enumerate(others) for b in others[i + 1 :]][:20]
    trials += [{slot: 1, o: 1} for o in free]
    if len(others) > 2:
        trials.append({slot: 1} | dict.fromkeys(others, 1))
    return trials


def _find_step(search: Search, group: Group) -> None:
    """Whether the group's value must be a multiple of something (heads, groups), found by adding small amounts."""
    slot = group.head
    value = search.start[slot]
    if len(group.slots) > 1 or search.tracer.works(search.overrides({**search.start, slot: value + 1})):
        return
    steps = sorted({v for v in search.start.values() if 1 < v < value and value % v == 0} | {2, 4, 8, 16, 32})
    for step in steps:
        if value % step == 0 and search.tracer.works(search.overrides({**search.start, slot: value + step})):
            group.step = step
            group.coupled = tuple(s for s, v in search.start.items() if v == step and s != slot)
            return


def _leading(base: Trace, trace: Trace) -> bool:
    """Only first dimensions of inputs differ, and no parameter does."""
    if base.parameters != trace.parameters or len(base.inputs) != len(trace.inputs) or base.inputs == trace.inputs:
        return False
    return all(len(a) == len(b) and a[1:] == b[1:] for a, b in zip(base.inputs, trace.inputs, strict=True))


def _reduce(search: Search, values: Sizes) -> Sizes:
    """Reduce the largest sizes until the run is within its budgets, or nothing can be reduced any more."""
    trace = search.base
    for leading_floor, floor in FLOORS:
        done: set[Slot] = set()
        while search.over(trace) > 1:
            todo = [g for g in search.groups if g.head not in done and (not g.structural or len(trace.shapes) > STRUCTURAL_OPS)]
            if not todo:
                break
            group = max(todo, key=lambda g: _weight(g, values, trace))
            step = _smaller(search, group, values, trace, leading_floor if group.leading else floor)
            if step is None:
                done.add(group.head)
            else:
                values, trace = step
    return values


def _weight(group: Group, values: Sizes, trace: Trace) -> float:
    value = float(values[group.head])
    if group.structural:
        return value * 1e6
    return value * 4 if group.leading else value


def _smaller(search: Search, group: Group, values: Sizes, trace: Trace, floor: int) -> tuple[Sizes, Trace] | None:
    """One step down for a group: by 8 or 4 while far over budget, else by 2, or a smaller factor where only that works."""
    over = search.over(trace)
    factors = [f for f in (8.0, 4.0) if over > f * 4 and not group.structural] + [2.0, 1.5, 4 / 3]
    for factor in factors:
        changed = {s: _scaled(values[s], factor**e, group.step if s == group.head else 1) for s, e in group.slots.items()}
        head = changed[group.head]
        for slot in group.coupled:
            ratio = min(4, search.start[group.head] // search.start[slot])
            count = values[slot]
            while count > SMALL and head < ratio * count:  # many groups or heads become fewer with the width
                count //= 2
            changed.update({slot: count} if count != values[slot] else {})
            if head < ratio * count:
                head = 0
        if head < floor or any(v < 2 or v >= values[s] for s, v in changed.items()):
            continue
        after = search.run({**values, **changed})
        if after is not None and (not after.ran or _cheaper(after, trace)):
            return {**values, **changed}, after
    return None


def _cheaper(after: Trace, before: Trace) -> bool:
    """By at least a hundredth, in any of what is counted: less is not worth a change."""
    pairs = ((after.flops, before.flops), (after.work, before.work), (after.input_elements, before.input_elements))
    return any(a < 0.99 * b for a, b in pairs)


def _scaled(value: int, factor: float, step: int) -> int:
    new = int(value / factor)
    return new - new % step if step > 1 and value % step == 0 and new >= step else new


def _confirmed_first(search: Search, values: Sizes, grade: Callable[[Sizes], int]) -> tuple[Sizes, int]:
    """The set itself where a real run confirms it, else a larger one that does; failing that, the best there is. And its grade."""
    best, reached = values, grade(values)
    start = search.run(values)
    ordered = sorted(search.groups, key=lambda g: not g.leading)
    end = time.perf_counter() + PATIENCE
    for factor in (2, 4):
        for group in ordered:
            if reached == confirm.GOOD or time.perf_counter() > end:
                return best, reached
            larger = {**values, **{s: min(search.start[s], values[s] * factor**e) for s, e in group.slots.items()}}
            trace = search.run(larger) if larger != values else None
            if trace is not None and trace.flops <= max(LIMITED_FLOPS, 4 * start.flops if start else 0) and grade(larger) > reached:
                best, reached = larger, grade(larger)
    return best, reached


def _different(search: Search, found: list[Sizes], number: int, good: Callable[[Sizes], bool]) -> Sizes | None:
    """Another set: every group moved to an odd number near the first set's where that works, else to any other number."""
    first = found[0]
    start = search.run(first)
    limit = max(2.0, 1.6 * search.over(start)) if start else 2.0
    factors = ((0.7, 1.3), (1.4, 0.8), (0.55, 1.7))[(number - 1) % 3]
    values = dict(first)
    moved: list[Group] = []
    for group in sorted(search.groups, key=lambda g: not g.leading):
        if group.structural and first[group.head] == search.original[group.head]:
            continue  # a number of layers stays what it is
        for changed in _alternatives(search, group, first, factors):
            after = search.run({**values, **changed})
            if after is not None and search.over(after) <= limit and {**values, **changed} not in found:
                values = {**values, **changed}
                moved.append(group)
                break
    while moved:
        if values not in found and good(values):
            return values
        group = moved.pop()
        values = {**values, **{s: first[s] for s in group.slots}}
    return None


def _alternatives(search: Search, group: Group, first: Sizes, factors: tuple[float, ...]) -> list[dict[Slot, int]]:
    head = first[group.head]
    if len(group.slots) > 1:
        ratios = (0.75, 1.5, 0.5, 2.0, 1.25)
        trials = [{s: first[s] * r**e for s, e in group.slots.items()} for r in ratios]
        return [{s: int(v) for s, v in t.items()} for t in trials if all(v == int(v) and v >= 2 for v in t.values())]
    least = 2 if head <= 4 else 3
    wanted: list[int] = []
    for step in dict.fromkeys((group.step, 1, 2, 4, 8, 16, 32)):
        if step >= group.step:
            for factor in factors:
                wanted.append((int(head * factor / step) | 1) * step)
    wanted += [head + 1, head - 1, head * 2, head // 2]
    return [{group.head: v} for v in dict.fromkeys(wanted) if v >= least and v != head]


def _slots(constants: Mapping[str, Any]) -> list[tuple[Slot, int]]:
    found: list[tuple[Slot, int]] = []

    def visit(name: str, path: tuple[int, ...], value: Any) -> None:
        if isinstance(value, int):
            found.append(((name, path), value))
        else:
            for index, item in enumerate(value):
                visit(name, (*path, index), item)

    for name, value in constants.items():
        visit(name, (), value)
    return found


def _put(value: Any, path: tuple[int, ...], new: int) -> Any:
    if not path:
        return new
    items = list(value)
    items[path[0]] = _put(items[path[0]], path[1:], new)
    return tuple(items) if isinstance(value, tuple) else items
