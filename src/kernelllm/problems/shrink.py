"""Shrinks a problem: smaller sizes at which it still is the same problem.

Nothing here knows any problem. Each constant is tried: does it set a size at all, must it be a multiple of something, does it only
work when others move with it? Then the largest sizes are reduced until a dry run (:mod:`kernelllm.problems.trace`) stays within
the budgets, and the result is confirmed by running the reference for real. Relations survive because every step is a run.
"""

from __future__ import annotations

import ast
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from kernelllm.core.errors import ProblemError
from kernelllm.core.types import Problem, SizeSet
from kernelllm.problems import confirm, sizes
from kernelllm.problems.first_run import first_run
from kernelllm.problems.hidden_constants import hidden_constants
from kernelllm.problems.instance import Instance
from kernelllm.problems.nested import tensors
from kernelllm.problems.relations import COUNT, SMALL, Budget, DryRuns, RelationSearch, SizeGroup, Sizes, Slot, classify, shorten, slots
from kernelllm.problems.trace import Trace

log = logging.getLogger(__name__)

CPU = Budget()
FLOP_RATE = 150_000_000
"""FLOPs in a second: about what Triton's interpreter does on one core."""
SECONDS = CPU.flops / FLOP_RATE
EXACT = 4_000_000_000
"""FLOPs up to which a run is repeated in float64 to see how well conditioned it is."""
PATIENCE = 20_000_000_000
"""FLOPs to spend on looking for a better conditioned set."""
LONG = 10_000
"""The longest a dimension gets in the second set, where rows are few."""
FLOORS = ((4, 16), (2, 8), (2, 4))
"""Stages of how far sizes may fall, leading (batch-like) dimensions and others: the next stage is only for what stays over budget."""
MANY_ROWS = 8, 16
"""Rows of a set where with fewer the output is rounding alone."""
AMPLE = 10, 13, 10
"""How many times larger the second set may be, in elements, FLOPs and work: large enough that most kernels' loops run more than once."""
STRUCTURAL_OPS = 1_500
"""Constants that change the number of operators (layers, unrolled time steps) are reduced only beyond so many operators."""


@lru_cache(maxsize=512)
def _shrunk(problem: Problem, count: int, budget: Budget, fixed: frozenset[str] = frozenset()) -> tuple[tuple[tuple[str, Any], ...], ...]:
    found = _search(problem, count, budget, fixed | hidden_constants(problem))
    return tuple(tuple(overrides.items()) for overrides in found)


def shrunk(
    problem: Problem, *, count: int = 2, budget_elements: int = CPU.elements, budget_s: float = SECONDS, budget_work: int = CPU.work,
    fixed: frozenset[str] = frozenset(),
) -> list[dict[str, Any]]:
    """Up to ``count`` different sets of constants for :class:`Instance`, small enough for a CPU, each confirmed by a real run.

    The aim is at most ``budget_elements`` elements in the largest tensor, ``budget_work`` in all that operators compute, and as many
    FLOPs as the interpreter does in ``budget_s`` seconds (taken as 150 MFLOP a second); a model with widths in its code may stay above
    it. The same problem always gets the same sets. The first set is the smallest found, the next ones differ from it in every size
    that can differ, with odd numbers where the problem works with them. ``{}`` stands for the problem's own sizes, where
    these are small already. Fewer sets come back where fewer work.
    Constants named in ``fixed`` stay as they are, and so do those that :mod:`kernelllm.problems.hidden_constants` finds.
    Raises ProblemError where the reference works at no size.
    """
    budget = replace(CPU, elements=budget_elements, flops=int(budget_s * FLOP_RATE), work=budget_work)
    return [dict(items) for items in _shrunk(problem, count, budget, fixed)]


def within(problem: Problem, budget: Budget, fixed: frozenset[str] = frozenset()) -> dict[str, Any]:
    """One set of constants within a budget of the caller's own; as :func:`shrunk` otherwise."""
    return dict(_shrunk(problem, 1, budget, fixed)[0])


def flops(problem: Problem, overrides: Mapping[str, Any]) -> int:
    """FLOPs of one run of the reference at these constants (a multiply-add is two), by a dry run. Raises ProblemError as the run."""
    return _flops(problem, repr(dict(overrides)))


@lru_cache(maxsize=512)
def _flops(problem: Problem, constants: str) -> int:
    return DryRuns(problem).trace(ast.literal_eval(constants)).flops


def describe(problem: Problem, overrides: Mapping[str, Any]) -> SizeSet:
    """What was changed and the inputs that result, without drawing them. The label is ``original`` or ``shrunk``."""
    known = sizes.constants(problem)
    changed = {name: (known.get(name), value) for name, value in overrides.items()}
    return SizeSet(label="shrunk" if overrides else "original", changed=changed, inputs=_input_texts(problem, overrides))


def _input_texts(problem: Problem, overrides: Mapping[str, Any]) -> tuple[str, ...]:
    from kernelllm.problems.meta_tensors import meta_tensors

    first_run(problem)
    instance = Instance(problem, overrides)
    try:
        with meta_tensors():
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


def _search(problem: Problem, count: int, budget: Budget, fixed: frozenset[str]) -> list[dict[str, Any]]:
    dry_runs = DryRuns(problem)
    base = dry_runs.trace({})
    original = dict(slots({n: v for n, v in sizes.constants(problem).items() if n not in fixed}))
    search = RelationSearch(problem, dry_runs, original, original, base, budget)
    if not base.ran:
        shorten(search)
    search.groups = classify(search)
    grade: Callable[[Sizes], int] = lambda values: _grade(search, values)
    reduced = _reduce(search, dict(search.start))
    _refuse_what_does_not_fit(search, reduced)
    first, reached = _confirmed_first(search, reduced, grade)
    if reached == confirm.FAILS:  # dry runs see no values: a bound of indices may have to follow the dimension that they index
        search.groups = _equal_together(search)
        first, reached = _confirmed_first(search, _reduce(search, dict(search.start)), grade)
    if reached == confirm.FAILS:
        search.groups = _free_of_values(search, grade)
        first, reached = _confirmed_first(search, _reduce(search, dict(search.start)), grade)
    if reached == confirm.FAILS:  # sizes that depend on each other in ways that nothing here sees: those of the problem remain
        first = dict(original)
        reached = grade(first)
        count = 1
    if reached == confirm.FAILS:
        confirm.run(problem, search.overrides(first))  # says where and why
        raise ProblemError(f"The problem's reference fails at every size tried, such as {search.overrides(first) or 'its own'}.")
    found = [first]
    good: Callable[[Sizes], bool] = lambda values: grade(values) >= reached
    for number in range(1, count):
        search.budget = budget
        values = (_ample(search, found, good) if number == 1 else None) or _different(search, found, number, good)
        if values is None:
            break
        found.append(values)
    log.debug("%s: %d dry runs by %s", problem.name, dry_runs.count, dry_runs.way)
    return [search.overrides(values) for values in found]


def _equal_together(search: RelationSearch) -> list[SizeGroup]:
    """The groups, each with all other sizes of the same value in the problem."""
    found: dict[int, SizeGroup] = {}
    for group in search.groups:
        value = search.start[group.head]
        equal = {s: 1 for s, v in search.start.items() if v == value and search.may_change(s, v)}
        merged = replace(group, slots={**group.slots, **equal}) if value > SMALL else group
        known = found.setdefault(value, merged)
        if known is not merged:
            found[value] = replace(known, slots={**known.slots, **merged.slots}, leading=known.leading and merged.leading)
    return list(found.values())


def _free_of_values(search: RelationSearch, grade: Callable[[Sizes], int]) -> list[SizeGroup]:
    """The groups without those that some input's values go by, which nothing ties to them: 12 classes, and indices below 11.

    A group stays where the reference runs with all of the earlier ones that stayed reduced, and it.
    """
    reduced, stay = _reduce(search, dict(search.start)), list[SizeGroup]()
    values = dict(search.start)
    for group in sorted(search.groups, key=lambda g: not g.leading):
        smaller = {**values, **{s: reduced[s] for s in group.slots}}
        trace = search.run(smaller)
        if smaller != values and trace is not None and trace.flops <= EXACT and grade(smaller) > confirm.FAILS:
            values = smaller
            stay.append(group)
    return stay


def _refuse_what_does_not_fit(search: RelationSearch, values: Sizes) -> None:
    """The smallest sizes found run for real next, on the CPU."""
    trace = search.run(values)
    wanted = trace.input_bytes + trace.parameter_bytes if trace else 0
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if wanted > memory:
        raise ProblemError(
            f"The problem's inputs and parameters take {wanted / 1e9:.0f} GB at the smallest sizes found, and this machine has"
            f" {memory / 1e9:.0f} GB.",
            where=search.problem.path or search.problem.name,
            fix="Write its sizes as numbers in module-level constants, or make them smaller.",
        )


def _grade(search: RelationSearch, values: Sizes) -> int:
    trace = search.run(values)
    conditioning = trace is None or trace.flops <= EXACT
    return confirm.grade(search.problem, search.overrides(values), conditioning=conditioning and search.budget.conditioned)


def _reduce(search: RelationSearch, values: Sizes) -> Sizes:
    """Reduce the largest sizes until the run is within its budgets, or nothing can be reduced any more."""
    trace = search.base
    for leading_floor, floor in FLOORS:
        done: set[Slot] = set()
        while search.over(trace) > 1:
            todo = [g for g in search.groups if g.head not in done and (not g.structural or len(trace.shapes) > STRUCTURAL_OPS)]
            if not todo:
                break
            group = max(todo, key=lambda g: _weight(g, values, search.budget))
            step = _smaller(search, group, values, trace, leading_floor if group.leading else floor)
            if step is None:
                done.add(group.head)
            else:
                values, trace = step
    return values


def _weight(group: SizeGroup, values: Sizes, budget: Budget) -> float:
    value = float(values[group.head])
    if group.structural:
        return value * 1e6
    return value * budget.leading if group.leading else value


def _smaller(search: RelationSearch, group: SizeGroup, values: Sizes, trace: Trace, floor: int) -> tuple[Sizes, Trace] | None:
    """One step down for a group: by 8 or 4 while far over budget, else by 2, or a smaller factor where only that works."""
    over = search.over(trace)
    factors = [f for f in (8.0, 4.0) if over > f * 4 and not group.structural] + [2.0, 1.5, 4 / 3]
    for factor in factors:
        changed = {s: _scaled(values[s], factor**e, group.step if s == group.head else 1) for s, e in group.slots.items()}
        head = changed[group.head]
        for slot in group.coupled:
            ratio = min(4, search.start[group.head] // search.start[slot])
            count = values[slot]
            while count > COUNT and head < ratio * count:  # many groups or heads become fewer with the width
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


def _confirmed_first(search: RelationSearch, values: Sizes, grade: Callable[[Sizes], int]) -> tuple[Sizes, int]:
    """The set itself where a real run confirms it, else a larger one that does; failing that, the best there is. And its grade."""
    best, reached = values, grade(values)
    if reached == confirm.ROUGH:
        best, reached = _of_many_rows(search, values, grade)
        if reached > confirm.ROUGH:
            return best, reached
    start = search.run(values)
    ordered = sorted(search.groups, key=lambda g: not g.leading)
    spent = start.flops if start else 0
    for factor in (2, 4):
        for group in ordered:
            if reached == confirm.GOOD or spent > PATIENCE:
                return best, reached
            larger = {**values, **{s: min(search.start[s], values[s] * factor**e) for s, e in group.slots.items()}}
            trace = search.run(larger) if larger != values else None
            if trace is None or trace.flops > max(search.budget.growth, 4 * start.flops if start else 0):
                continue
            spent += 2 * trace.flops  # in float32 and float64
            if (new := grade(larger)) > reached:
                best, reached = larger, new
    return best, reached


def _of_many_rows(search: RelationSearch, values: Sizes, grade: Callable[[Sizes], int]) -> tuple[Sizes, int]:
    """A set with more rows than the problem itself has, where its output is rounding alone: a batch norm of two values, layer after layer,
    makes anything of their last digits, and of eight it does not."""
    for rows in MANY_ROWS:
        for group in (g for g in search.groups if g.leading and not g.structural and values[g.head] < rows):
            factor = rows / values[group.head]
            larger = {**values, **{s: int(values[s] * factor**e) for s, e in group.slots.items()}}
            trace = search.run(larger)
            if trace is not None and trace.flops <= search.budget.growth and (new := grade(larger)) > confirm.ROUGH:
                return larger, new
    return values, confirm.ROUGH


def _ample(search: RelationSearch, found: list[Sizes], good: Callable[[Sizes], bool]) -> Sizes | None:
    """Another set with room in it: the first one, its shortest dimensions longer, then moved to odd numbers; None where it has no room."""
    budget = search.budget
    elements, flops, work = AMPLE
    search.budget = replace(budget, elements=elements * budget.elements, flops=flops * budget.flops, work=work * budget.work)
    values, grown = dict(found[0]), False
    todo = [g for g in search.groups if not g.leading and not g.structural and not g.coupled]
    while todo:
        group = min(todo, key=lambda g: values[g.head])
        longer = {**values, **{s: min(search.start[s], values[s] * 2**e) for s, e in group.slots.items()}}
        after = search.run(longer) if longer != values else None
        if after is None or search.over(after) > 1:
            todo.remove(group)
        else:
            values, grown = longer, True
    return _different(search, [values, *found], 1, good, (1.3, 0.7)) if grown else None


def _different(
    search: RelationSearch, found: list[Sizes], number: int, good: Callable[[Sizes], bool], factors: tuple[float, ...] = ()
) -> Sizes | None:
    """Another set: every group moved to an odd number near the first set's where that works, else to any other number."""
    first = found[0]
    start = search.run(first)
    limit = max(2.0, 1.6 * search.over(start)) if start else 2.0
    factors = factors or ((0.7, 1.3), (1.4, 0.8), (0.55, 1.7))[(number - 1) % 3]
    values = dict(first)
    moved: list[SizeGroup] = []
    for group in sorted(search.groups, key=lambda g: not g.leading):
        if group.structural and not group.given and first[group.head] == search.original[group.head]:
            continue  # a number of layers stays what it is
        for changed in _alternatives(group, first, factors):
            after = search.run({**values, **changed})
            if after is not None and search.over(after) <= limit and {**values, **changed} not in found:
                values = {**values, **changed}
                moved.append(group)
                break
    if number == 1:
        stretched = _stretched(search, values)
        if stretched is not None and stretched not in found and good(stretched):
            return stretched
    for left_out in (None, *moved):  # one that an index's bound does not follow must not keep the others from moving
        kept = {**values, **{s: first[s] for s in left_out.slots}} if left_out else values
        if kept not in found and good(kept):
            return kept
    while moved:
        group = moved.pop()
        values = {**values, **{s: first[s] for s in group.slots}}
        if values not in found and good(values):
            return values
    return None


def _stretched(search: RelationSearch, values: Sizes) -> Sizes | None:
    """The set with few rows and, in exchange, one other dimension long enough that kernels must loop over it or use many blocks."""
    rowwise = [g for g in search.groups if g.leading and not g.structural and g.step == 1 and len(g.slots) == 1]
    leading = [g for g in rowwise if values[g.head] > SMALL]
    if not leading:
        return None
    rows = max(leading, key=lambda g: values[g.head])
    short = {**values, rows.head: 5}
    others = [g for g in search.groups if not g.leading and not g.structural and len(g.slots) == 1]
    for group in sorted(others, key=lambda g: search.original[g.head], reverse=True):
        value, most = values[group.head], min(search.original[group.head], LONG)
        factor = values[rows.head] / 5
        while factor >= 2:
            long = (int(min(value * factor, most) / group.step - 1) | 1) * group.step
            after = search.run({**short, group.head: long})
            if after is not None and long > value and search.over(after) <= 1.2:
                return {**short, group.head: long}
            factor /= 2
    return None


def _alternatives(group: SizeGroup, first: Sizes, factors: tuple[float, ...]) -> list[dict[Slot, int]]:
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
