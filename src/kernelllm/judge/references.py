"""Builds the references of a problem at all sizes of its trials once, and lends them to one candidate at a time."""

from __future__ import annotations

import contextlib
import itertools
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kernelllm.core.errors import ProblemError
from kernelllm.core.types import Problem, SizeSet
from kernelllm.judge import gradient_outputs
from kernelllm.judge.checks.asked_shapes import SizeCondition
from kernelllm.judge.judge_settings import KERNELBENCH, QUICK, JudgeSettings
from kernelllm.judge.trials.inputs.input_distribution import UNEVEN
from kernelllm.judge.trials.reference_runs.device_asserts import may_assert
from kernelllm.judge.trials.reference_runs.failed_runs import failures_logged
from kernelllm.judge.trials.reference_runs.reference import Reference, prepare
from kernelllm.judge.trials.sampled_programs import BEYOND, LARGE, PreparedRun, affordable, negated_run, prepare_run
from kernelllm.judge.trials.schedule import INIT_SEED
from kernelllm.problems import shrink, sizes
from kernelllm.problems.bounds import within_sizes
from kernelllm.problems.larger_sizes import larger, longest
from kernelllm.problems.other_branches import sets_of_other_branches
from kernelllm.problems.product_sizes import sets_of_products
from kernelllm.problems.seeds import own_generators
from kernelllm.problems.smallest_sizes import sets_at, sets_between, sets_of_counts, sets_outside, sets_with

_KEPT_PROBLEMS = 8
_FEW = {"budget_elements": shrink.CPU.elements // 3, "budget_s": shrink.SECONDS / 3, "budget_work": shrink.CPU.work // 3}
"""Budgets of the profile ``quick``: a third of the usual ones. Sizes are cut, not their number, nor odd ones among them."""
_EMPTY, _COUNTS = 2, 3
"""Sizes that are tried at 0, and counts that are tried at another number."""
_BETWEEN, _EXACT, _PRODUCTS, _BRANCHES = 2, 3, 4, 4
"""Sizes between others that are tried, sizes that are compared with, products of sizes, and sizes for branches that none of them takes."""
SMALL_SETS = 2
"""Shrunk sets of sizes, where the settings do not say: a round one and an odd one."""


class References:
    """The references of the latest problems on one device. Safe for several threads."""

    def __init__(self, settings: JudgeSettings, device: str) -> None:
        self._settings, self._device = settings, device
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, frozenset[str], bool], list[Reference]] = OrderedDict()
        self._large: tuple[tuple[str, frozenset[str]], PreparedRun | None] | None = None
        self._smallest: OrderedDict[tuple[str, frozenset[str], bool, tuple[int, ...]], list[PreparedRun]] = OrderedDict()

    @contextlib.contextmanager
    def borrowed(self, problem: Problem, fixed: frozenset[str] = frozenset()) -> Iterator[list[Reference]]:
        """The references of a problem, smallest sizes first, at the problem's own values of the constants ``fixed``.

        Not kept after an error, which leaves their state unknown.
        """
        key = (problem.digest, fixed, gradient_outputs.wanted(self._settings, problem))
        with self._lock:
            references = self._kept.pop(key, None)
        if references is None:
            with own_generators():
                references = self._build(problem, fixed)
        yield references
        with self._lock:
            self._kept[key] = references
            while len(self._kept) > (_KEPT_PROBLEMS if self._device == "cpu" else 1):
                self._kept.popitem(last=False)

    @contextlib.contextmanager
    def large(self, problem: Problem, fixed: frozenset[str], tried: Sequence[Reference]) -> Iterator[PreparedRun | None]:
        """The reference's run at the original size, or the largest that a CPU runs it at. None where that was tried or cannot be had."""
        key = (problem.digest, fixed)
        with self._lock:
            kept, self._large = self._large, None
        if kept is None or kept[0] != key:
            kept = key, self._run_large(problem, fixed, tried)
        yield kept[1]
        with self._lock:
            self._large = kept

    def _run_large(self, problem: Problem, fixed: frozenset[str], tried: Sequence[Reference]) -> PreparedRun | None:
        if any(not reference.sizes.changed for reference in tried):
            return None
        described, overrides = shrink.describe(problem, {}), dict[str, Any]()
        if not affordable(described, shrink.flops(problem, {})):
            overrides = shrink.within(problem, LARGE, fixed)
            described = shrink.describe(problem, overrides)
        if any(described.inputs == reference.sizes.inputs for reference in tried):
            return None
        with own_generators(), failures_logged("No large size could be tried", ProblemError):
            return prepare_run(prepare(problem, described, overrides, self._device, INIT_SEED, True), INIT_SEED, UNEVEN)
        return None

    @contextlib.contextmanager
    def beyond(
        self, problem: Problem, fixed: frozenset[str], tried: Sequence[Reference], bounds: tuple[int, ...] = ()
    ) -> Iterator[list[PreparedRun]]:  # fmt: skip
        """The reference's run at a size beyond all that were tried, of as many elements as a CPU takes a moment for; none where no size
        alone makes it so large. Where one of ``bounds`` lies beyond that size, with smaller others beside it."""

        def made() -> list[PreparedRun]:
            found = larger(problem, _own(tried), BEYOND)
            if found is not None and any(bound > longest(problem, found) for bound in bounds):
                longer = larger(problem, _own(tried), BEYOND, few=True) or found
                found = longer if longest(problem, longer) > longest(problem, found) else found
            run = None if found is None else self._prepared(problem, found, tried, backward=False)  # programs are sampled of a forward
            return [] if run is None else [run, *negated_run(run)]  # what is zero in one run shows in the other

        with self._kept_runs(problem, fixed, (BEYOND, *bounds), made) as runs:
            yield runs

    @contextlib.contextmanager
    def smallest(self, problem: Problem, fixed: frozenset[str], tried: Sequence[Reference], length: int) -> Iterator[list[PreparedRun]]:
        """The reference's runs with one size after the other at ``length``, 1 or 0, where it works and stays finite. On a GPU one alone;
        of empty tensors few, on a CPU."""
        with self._kept_runs(problem, fixed, (length,), lambda: self._run_smallest(problem, tried, length)) as runs:
            yield runs

    @contextlib.contextmanager
    def other_counts(self, problem: Problem, fixed: frozenset[str], tried: Sequence[Reference]) -> Iterator[list[PreparedRun]]:
        """The reference's runs with another number of heads, groups or the like, one after the other; on a GPU one alone."""

        def made() -> list[PreparedRun]:
            sets = sets_of_counts(problem, _own(tried), fixed, _COUNTS if self._device == "cpu" else 1)
            found = [self._prepared(problem, overrides, tried) for overrides in sets]
            return [run for run in found if run is not None]

        with self._kept_runs(problem, fixed, (-1,), made) as runs:
            yield runs

    @contextlib.contextmanager
    def past_blocks(
        self, problem: Problem, fixed: frozenset[str], tried: Sequence[Reference], blocks: tuple[int, ...]
    ) -> Iterator[list[PreparedRun]]:  # fmt: skip
        """The reference's runs with one size after the other longer than the next of ``blocks`` beyond all that were tried."""

        def made() -> list[PreparedRun]:
            found = [self._prepared(problem, one, tried) for one in sets_outside(problem, _own(tried), blocks, _BETWEEN)]
            return [run for run in found if run is not None]

        with self._kept_runs(problem, fixed, (-2, *blocks), made) as runs:
            yield runs

    @contextlib.contextmanager
    def between(
        self, problem: Problem, fixed: frozenset[str], tried: Sequence[Reference], bounds: tuple[int, ...],
        exact: tuple[tuple[int, int], ...] = (), asked: Sequence[SizeCondition] = (),
    ) -> Iterator[list[PreparedRun]]:  # fmt: skip
        """The reference's runs at sizes between two of ``bounds``, and at ``exact`` ones, where none was tried; then with products of sizes
        there, and where what is ``asked`` of a shape has another answer."""

        def made() -> list[PreparedRun]:
            sets = [*sets_between(problem, _own(tried), bounds, _BETWEEN), *sets_outside(problem, _own(tried), bounds, _BETWEEN)]
            at, questions = sets_at(problem, _own(tried), exact, _EXACT), [(one.holds, one.hints) for one in asked]
            products = sets_of_products(problem, [*_own(tried), *sets, *at], bounds, exact, _PRODUCTS)
            branches = sets_of_other_branches(problem, [*_own(tried), *sets, *at, *products], questions, _BRANCHES)
            # by turns: on a GPU there may be no time for all of them
            sets += [one for several in itertools.zip_longest(at, branches, products) for one in several if one is not None]
            found = [self._prepared(problem, overrides, tried) for overrides in sets]
            return [run for run in found if run is not None]

        with self._kept_runs(problem, fixed, (*bounds, *itertools.chain(*exact), *(hash(one.text) for one in asked)), made) as runs:
            yield runs

    @contextlib.contextmanager
    def _kept_runs(
        self, problem: Problem, fixed: frozenset[str], kind: tuple[int, ...], made: Callable[[], list[PreparedRun]]
    ) -> Iterator[list[PreparedRun]]:
        key = (problem.digest, fixed, gradient_outputs.wanted(self._settings, problem), kind)
        with self._lock:
            runs = self._smallest.pop(key, None)
        yield (runs := made() if runs is None else runs)
        with self._lock:
            self._smallest[key] = runs
            while len(self._smallest) > 3 * (_KEPT_PROBLEMS if self._device == "cpu" else 1):  # both lengths, and between
                self._smallest.popitem(last=False)

    def _run_smallest(self, problem: Problem, tried: Sequence[Reference], length: int) -> list[PreparedRun]:
        runs: list[PreparedRun] = []
        most = (_EMPTY if length == 0 else None) if self._device == "cpu" else length
        for overrides in sets_with(problem, _own(tried), length) if most != 0 else ():
            runs += [run for run in [self._prepared(problem, overrides, tried)] if run is not None]
            if len(runs) == most:
                break
        return runs

    def _prepared(
        self, problem: Problem, overrides: dict[str, Any], tried: Sequence[Reference], *, backward: bool = True
    ) -> PreparedRun | None:
        with own_generators(), failures_logged("A set of sizes is not tried", ProblemError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a layer of no elements is nothing that the user wrote
            described, gradients = shrink.describe(problem, overrides), backward and bool(tried[0].gradients)
            if self._device != "cpu" and may_assert(tried[0].ops):  # a position may lie beyond a smaller table: a CPU says so
                prepare(problem, described, overrides, "cpu", INIT_SEED, False)
            made = prepare(problem, described, overrides, self._device, INIT_SEED, True, gradients)
            # lengths and offsets beyond a size that shrank alone: a reference may take them, and no user gives them
            runs = (prepare_run(made, INIT_SEED, given=one) for one in within_sizes(made.inputs(INIT_SEED), tried[0].inputs(INIT_SEED)))
            return next((run for run in runs if run is not None), None)
        return None

    def fixed_by(self, candidate: str, problem: Problem) -> dict[str, Any]:
        """The constants that a candidate declares as fixed, where any of them would be changed otherwise."""
        declared = sizes.fixed_by(candidate, problem)
        if not declared:
            return {}
        with own_generators():
            changed = {n for _, o in self._size_sets(problem, self._settings.profile != KERNELBENCH, frozenset()) for n in o}
        return declared if changed & declared.keys() else {}

    def clear(self) -> None:
        """Drop all references."""
        self._kept.clear()
        self._large = None
        self._smallest.clear()

    def _build(self, problem: Problem, fixed: frozenset[str]) -> list[Reference]:
        exact = self._settings.profile != KERNELBENCH
        references = []
        for label, overrides in self._size_sets(problem, exact, fixed):
            described = shrink.describe(problem, overrides)
            size = SizeSet(label=label, changed=described.changed, inputs=described.inputs)
            gradients = gradient_outputs.wanted(self._settings, problem)
            references.append(prepare(problem, size, overrides, self._device, INIT_SEED, exact, gradients))
        return references

    def _size_sets(self, problem: Problem, exact: bool, fixed: frozenset[str]) -> list[tuple[str, dict[str, Any]]]:
        """Label of each set of sizes, and the constants that it changes."""
        wanted = self._settings.sizes or SMALL_SETS
        if self._device == "cpu":
            return _labelled(problem, wanted, fixed, _FEW if self._settings.profile == QUICK else None)
        # The odd small sizes first, and last the original: a wrong candidate fails before it, a right one is timed there.
        # KernelBench knows the original alone: at small sizes TF32 may be a larger error than it allows.
        small = [one for one in _labelled(problem, max(wanted, SMALL_SETS), fixed) if one[1]] if exact else []
        return [*small[: -wanted - 1 : -1], ("original", {})]


def _own(tried: Sequence[Reference]) -> list[dict[str, Any]]:
    return [{name: new for name, (_, new) in reference.sizes.changed.items()} for reference in tried]


def _labelled(
    problem: Problem, count: int, fixed: frozenset[str], budgets: Mapping[str, Any] | None = None
) -> list[tuple[str, dict[str, Any]]]:
    sets: list[tuple[str, dict[str, Any]]] = []
    for overrides in shrink.shrunk(problem, count=count, fixed=fixed, **(budgets or {})):
        number = sum(1 for _, changed in sets if changed) + 1
        sets.append((f"shrunk-{number}" if overrides else "original", dict(overrides)))
    return sets
