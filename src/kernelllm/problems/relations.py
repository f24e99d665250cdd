"""Which constants set sizes, and the relations between them, found by trying them on dry runs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from kernelllm.core.errors import ProblemError
from kernelllm.core.types import Problem
from kernelllm.problems import sizes
from kernelllm.problems.first_run import first_run
from kernelllm.problems.instance import Instance
from kernelllm.problems.readable_sizes import readable
from kernelllm.problems.seeds import own_generators
from kernelllm.problems.trace import BUILD, WAYS, Trace

SMALL = 8
"""Constants up to this are kernel sizes, strides, numbers of layers or heads as often as sizes: they are left alone."""
COUNT = 16
"""Windows, groups and heads (what shows in no input's and no parameter's shape) up to this are part of the problem, not sizes."""


@dataclass(frozen=True)
class Budget:
    """What a set of sizes may cost: elements of the largest tensor, FLOPs, elements computed over all operators."""

    elements: int = 50_000
    flops: int = 30_000_000
    work: int = 1_000_000
    leading: float = 4.0
    """How much sooner leading (batch-like) dimensions are reduced than others of the same size."""
    conditioned: bool = True
    """Whether the output should be well conditioned, which takes runs in float64."""

    @property
    def growth(self) -> int:
        """How many FLOPs a set may grow to for the sake of a well conditioned output, where the first one is not."""
        return 8 * self.flops


Slot = tuple[str, tuple[int, ...]]
Sizes = dict[Slot, int]


@dataclass
class SizeGroup:
    """Slots that move together: when the group's factor is r, a slot of exponent e moves by r ** e."""

    slots: dict[Slot, int]
    leading: bool = False
    """Sets only first dimensions of inputs: a batch, or rows."""
    structural: bool = False
    """Changes how many operators run: layers, unrolled time steps."""
    given: bool = False
    """Sets dimensions of inputs, so that the number of operators follows their shapes: time steps rather than layers."""
    step: int = 1
    """Values must be multiples of this."""
    coupled: tuple[Slot, ...] = ()
    """Slots whose value is ``step``: the number of groups or heads that the width is divided by."""

    @property
    def head(self) -> Slot:
        """The slot that stands for the group."""
        return next(iter(self.slots))


@dataclass
class RelationSearch:
    """The state of one problem's search."""

    problem: Problem
    dry_runs: DryRuns
    original: Sizes
    start: Sizes
    """Where trials begin: the original sizes, or fewer time steps where the original run was too long to be followed."""
    base: Trace
    """The run at ``start``."""
    budget: Budget
    groups: list[SizeGroup] = field(default_factory=list)

    def overrides(self, values: Sizes) -> dict[str, Any]:
        """The constants to override for these slot values: only those that differ from the original."""
        return overridden(self.problem, self.original, values)

    def may_change(self, slot: Slot, value: int) -> bool:
        """Whether a number is a size. One that is written where it is passed has the name of the argument that it is."""
        return sizes.is_size(readable(self.problem.source).get(slot[0], slot[0]), value)

    def run(self, values: Sizes) -> Trace | None:
        """A dry run; None where the problem does not work at these sizes or a dimension has fallen to 1 that was more."""
        trace = self.dry_runs.works(self.overrides(values))
        return None if trace is None or self._collapsed(trace) else trace

    def over(self, trace: Trace) -> float:
        """How many times over its budgets a run is; at most 1 means within."""
        most = self.budget
        return max(trace.largest / most.elements, trace.flops / most.flops, trace.work / most.work, 0.0 if trace.ran else 50.0)

    def _collapsed(self, trace: Trace) -> bool:
        if len(trace.shapes) == len(self.base.shapes) and trace.ran and self.base.ran:
            pairs = zip((*trace.inputs, *trace.shapes), (*self.base.inputs, *self.base.shapes), strict=False)
        else:
            pairs = zip(trace.inputs, self.base.inputs, strict=False)
        return any(len(a) == len(b) and any(x <= 1 < y for x, y in zip(a, b, strict=True)) for a, b in pairs)


def shorten(search: RelationSearch) -> None:
    """Begin at fewer time steps, or smaller tensors, where the original run cannot be followed to its end."""
    for slot, value in search.original.items():
        if value >= 64:
            values = {**search.original, slot: max(8, value // 32)}
            trace = search.dry_runs.works(search.overrides(values))
            if trace is not None and trace.ran:
                search.start, search.base = values, trace
                return


def classify(search: RelationSearch) -> list[SizeGroup]:
    """Try each slot alone, then those that do not move alone with others. Slots that change nothing are left out."""
    groups: list[SizeGroup] = []
    stuck: list[Slot] = []
    idle: list[Slot] = []
    for slot, value in search.start.items():
        if not search.may_change(slot, value):
            continue
        down = [value // 2, value // 3, value * 3 // 4, value - 1] if value > SMALL else [value - 1, value + 1]
        trace = next((t for v in down if v >= 2 and (t := search.dry_runs.works(search.overrides({**search.start, slot: v})))), None)
        if trace is None:
            stuck.append(slot)
        elif trace != search.base or not search.base.ran:
            group = _group(search, {slot: 1}, trace)
            inner = trace.inputs == search.base.inputs and trace.parameters == search.base.parameters
            if value > (COUNT if inner else SMALL) or group.leading:
                groups.append(group)
        elif value > SMALL:
            idle.append(slot)
    groups += _tied(search, stuck)
    for slot in idle:
        groups = _with_bound(search, groups, slot)
    for group in groups:
        _find_step(search, group)
    return groups


def _group(search: RelationSearch, slots: dict[Slot, int], trace: Trace) -> SizeGroup:
    """Slots that move together, and what a run with other values for them shows of them."""
    base = search.base
    structural = len(trace.shapes) != len(base.shapes)
    return SizeGroup(slots, leading=_leading(base, trace), structural=structural, given=trace.inputs != base.inputs)


def _with_bound(search: RelationSearch, groups: list[SizeGroup], slot: Slot) -> list[SizeGroup]:
    """A size that changes no shape may be the bound of indices: it moves with all sizes of its value, else with those below it by one, as
    lengths up to a size are drawn (``randint(1, 81)``)."""
    value = search.start[slot]
    found = ([g for g in groups if search.start[g.head] == bounded] for bounded in (value, value - 1))
    equal = next(filter(None, found), [])
    if not equal:
        return groups
    slots = {s: e for g in equal for s, e in g.slots.items()} | {slot: 1}
    joined = replace(equal[0], slots=slots, leading=all(g.leading for g in equal), structural=any(g.structural for g in equal))
    return [joined if g is equal[0] else g for g in groups if g is equal[0] or g not in equal]


def _tied(search: RelationSearch, stuck: list[Slot]) -> list[SizeGroup]:
    """Groups of stuck slots that work when they move together, by equal or squared factors. Small ones must be rows of inputs."""
    groups: list[SizeGroup] = []
    left = [s for s in stuck if search.start[s] > SMALL]
    for few in sorted({search.start[s] for s in stuck} & set(range(2, SMALL + 1))):
        equal = dict.fromkeys((s for s in stuck if search.start[s] == few), 1)
        trace = search.dry_runs.works(search.overrides({**search.start, **dict.fromkeys(equal, few + few // 2)}))
        if len(equal) > 1 and trace is not None and _leading(search.base, trace):
            groups.append(_group(search, equal, trace))
    while left:
        slot = left.pop(0)
        for members in _partners(search, slot, left):
            values = {s: search.start[s] // 2**e for s, e in members.items()}
            if min(values.values()) < 2:
                continue
            trace = search.dry_runs.works(search.overrides({**search.start, **values}))
            if trace is not None:
                groups.append(replace(_group(search, members, trace), leading=False))
                left = [s for s in left if s not in members]
                break
    return groups


def _partners(search: RelationSearch, slot: Slot, others: list[Slot]) -> list[dict[Slot, int]]:
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


def _find_step(search: RelationSearch, group: SizeGroup) -> None:
    """Whether the group's value must be a multiple of something (heads, groups), found by adding small amounts."""
    slot = group.head
    value = search.start[slot]
    if len(group.slots) > 1 or search.dry_runs.works(search.overrides({**search.start, slot: value + 1})):
        return
    steps = sorted({v for v in search.start.values() if 1 < v < value and value % v == 0} | {2, 4, 8, 16, 32})
    for step in steps:
        if value % step == 0 and search.dry_runs.works(search.overrides({**search.start, slot: value + step})):
            group.step = step
            group.coupled = tuple(s for s, v in search.start.items() if v == step and s != slot)
            return


def _leading(base: Trace, trace: Trace) -> bool:
    """Only first dimensions of inputs differ, and no parameter does."""
    if base.parameters != trace.parameters or len(base.inputs) != len(trace.inputs) or base.inputs == trace.inputs:
        return False
    return all(len(a) == len(b) and a[1:] == b[1:] for a, b in zip(base.inputs, trace.inputs, strict=True))


def slots(constants: Mapping[str, Any]) -> list[tuple[Slot, int]]:
    """Each whole number among the constants: its name and place in a tuple, and its value."""
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


def overridden(problem: Problem, original: Sizes, values: Sizes) -> dict[str, Any]:
    """The constants to override for these slot values: only those that differ from the original."""
    known = sizes.constants(problem)
    changed: dict[str, Any] = {}
    for (name, path), value in values.items():
        if value != original[(name, path)]:
            changed[name] = _put(changed.get(name, known[name]), path, value)
    return changed


def _put(value: Any, path: tuple[int, ...], new: int) -> Any:
    if not path:
        return new
    items = list(value)
    items[path[0]] = _put(items[path[0]], path[1:], new)
    return tuple(items) if isinstance(value, tuple) else items


class DryRuns:
    """Dry runs of one problem, all in the way that worked at its own sizes. Raises ProblemError where none does."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.count = 0
        self.way, first = first_run(problem)
        self._seen: dict[str, Trace | ProblemError] = {_key({}): first}
        self._on_cuda = first.on_cuda
        self._models: dict[str, torch.nn.Module] = {}
        self._of_model = sizes.model_constants(problem.source)

    def trace(self, constants: Mapping[str, Any]) -> Trace:
        """The run at these constants. Raises ProblemError where the problem does not work at them."""
        key = _key(constants)
        if key not in self._seen:
            self.count += 1
            try:
                self._seen[key] = self._run(constants)
            except ProblemError as error:
                self._seen[key] = error
        known = self._seen[key]
        if isinstance(known, ProblemError):
            raise known
        return known

    def works(self, constants: Mapping[str, Any]) -> Trace | None:
        """The run at these constants, None where the problem does not work at them."""
        try:
            return self.trace(constants)
        except ProblemError:
            return None

    def _run(self, constants: Mapping[str, Any]) -> Trace:
        with own_generators(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = WAYS[self.way](Instance(self.problem, constants), self._model(constants))
        if self._on_cuda and not found.on_cuda:
            raise ProblemError(f"No GPU takes the sizes that an operator has where {dict(constants)}.")
        return found

    def _model(self, constants: Mapping[str, Any]) -> torch.nn.Module | None:
        """The model of an earlier run, where only the inputs' sizes have changed since; building is most of a run's time."""
        if self.way not in BUILD:
            return None
        key = _key({k: v for k, v in constants.items() if k in self._of_model})
        if key not in self._models:
            self._models.clear()
            self._models[key] = BUILD[self.way](Instance(self.problem, constants))
        return self._models[key]


def _key(constants: Mapping[str, Any]) -> str:
    return repr(sorted(constants.items()))
