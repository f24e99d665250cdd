"""Holds one run of the reference, refined as far as it takes to call a candidate's output right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import torch

from kernelllm.judge.trials.comparison.compare import (
    Comparison,
    Expected,
    Rules,
    compare,
    few_integer_mismatches,
    few_mismatches,
    tolerance_for,
)
from kernelllm.judge.trials.comparison.rerounded_outputs import might_be_rerounded
from kernelllm.judge.trials.comparison.rounding_flips import excuse_flips, few_flips, partly_off
from kernelllm.judge.trials.comparison.same_computation import MUCH, cast_like, finite_share, same_shapes
from kernelllm.judge.trials.comparison.turned_elements import far_off_without_reason
from kernelllm.judge.trials.reference_runs.chosen_sets import ChosenSets, ExactNumbers
from kernelllm.judge.trials.reference_runs.overflows import with_finite_numbers
from kernelllm.judge.trials.reference_runs.topk_ties import Choice, nearest_elements, takes_position_twice, with_reference_positions
from kernelllm.judge.trials.reference_runs.turned_signs import as_decided, turned_output
from kernelllm.problems import nested

_FAR_OFF = "{} element{} far off, though the decision behind it is out of the reach of rounding: no run under other roundings turns it."
_TWICE = "Of equal numbers that topk or sort choose, the same one is taken twice: each belongs in one place."


@dataclass
class ReferenceRun:
    """One run of the reference. Where it raised, ``error`` says so and nothing else holds."""

    expected: Expected
    finite: bool
    mutated_inputs: tuple[int, ...] = ()
    buffers: dict[str, torch.Tensor] = field(default_factory=dict)
    """Buffers after the run."""
    left: tuple[str, ...] = ()
    """What the run left behind: see :class:`kernelllm.judge.call_traces.CallTraces`."""
    error: str = ""
    before: dict[str, torch.Tensor] = field(default_factory=dict)
    """Buffers before the run, where it can be refined."""
    inputs: ReferenceRun | None = None
    """The inputs that it wrote into, as they are after it, in the place of its output."""
    inputs_before: dict[int, torch.Tensor] = field(default_factory=dict)
    """The same inputs as they were before it, by position."""
    unstable: bool = False
    """float64 gives other numbers than eager: the problem is ill-conditioned on these inputs. Known after :meth:`refine`."""
    step: float = 0.0
    """See :attr:`kernelllm.judge.trials.comparison.compare.Rules.step`."""
    has_tf32: bool = False
    """Whether the output with TF32 convolutions is among those that are as right. Known after :meth:`refine`."""
    _refined: bool = False
    refinements: Iterator[tuple[Expected, bool]] = field(default_factory=lambda: iter(()))
    """The output better and better known, cheapest first: in float64, with TF32 convolutions (then the second value is true), moved by
    rounding."""
    perturbed: Callable[[float], Iterator[Any]] = lambda _: iter(())
    """Outputs in float64, everything moved at random by up to so many units of rounding."""
    decided_otherwise: Callable[[], Iterator[Any]] = lambda: iter(())
    """More of them: where rounding decides something, one of several may have decided as a candidate did."""
    more_roundings: Callable[[], Iterator[Any]] = lambda: iter(())
    """More outputs of both kinds, which nothing was held against so far."""
    all_roundings: Callable[[], Iterator[Any]] = lambda: iter(())
    """The same, and such as working precision makes."""
    rerounded: Callable[[], Iterator[Any]] = lambda: iter(())
    """Outputs in working precision under another rounding."""
    ties_rerounded: Callable[[], Iterator[Any]] = lambda: iter(())
    """Outputs in float64, moved by rounding where working precision does not hold what is computed: ties of such numbers fall at random."""
    wide_roundings: Callable[[], Iterator[Any]] = lambda: iter(())
    """The same under eight times as much rounding."""
    overflows: Callable[[], bool] = lambda: False
    """Whether it computes numbers on the way that leave the range of their type, or whose squares do."""
    under: Callable[[AbstractContextManager[Any]], Any] = lambda _: None
    """The output under a mode that sees every operator."""
    in_double_under: Callable[[AbstractContextManager[Any]], Any] = lambda _: None
    """The same in float64."""
    choices: Callable[[], list[Choice]] = list
    """What it chose among equal values."""
    other_ties: Callable[[], Iterator[Expected]] = lambda: iter(())
    """Outputs that are as right, where it chose otherwise among equal values."""
    rewritten: Callable[[Any], Iterator[Any]] = lambda _: iter(())
    """The output where, of several values for one place, those stay that are nearest to a candidate's output."""
    rotated_ties: Callable[[], Iterator[tuple[list[Choice], Any]]] = lambda: iter(())
    """Choices and outputs, where each of some equal values was chosen before all others once, and behind them."""

    @property
    def is_informative(self) -> bool:
        """Whether its output can be compared: it is finite, or a good part of it is."""
        return not self.error and (self.finite or finite_share(self.expected.value) >= MUCH)

    def release(self) -> None:
        """Free the tensors that refining and perturbing take: neither is possible any more."""
        self.inputs, self.inputs_before = None, {}
        self.refinements, self.perturbed, self.choices = iter(()), lambda _: iter(()), list
        self.rewritten = lambda _: iter(())
        self.other_ties = self.rotated_ties = self.rerounded = self.decided_otherwise = lambda: iter(())
        self.more_roundings = self.all_roundings = self.ties_rerounded = self.wide_roundings = lambda: iter(())
        self.overflows, self.under, self.in_double_under = lambda: False, lambda _: None, lambda _: None

    def refine(self, rounding: bool) -> bool:
        """Run in float64 as well; with ``rounding`` also in the ways that show what rounding may do. False where that gave nothing."""
        while (rounding or not self._refined) and self._refine_further():
            pass
        return self.expected.has_exact or self.has_tf32 or self.unstable

    def _refine_further(self) -> bool:
        found, self._refined = next(self.refinements, None), True
        if found is not None:
            self.expected, self.has_tf32 = found
            far = not self.expected.has_exact and self.expected.exact is not None
            self.unstable = not self.expected.tf32_is_noise and (self.unstable or far)  # noise of TF32 is none of the rest
        return found is not None

    def compared(
        self, value: Any, rules: Rules, of: Callable[[Expected], Expected] = lambda expected: expected, exact: bool = False
    ) -> Comparison:
        """A candidate's output against this run, refined as far as it takes to call it right. ``of`` picks what is compared;
        ``exact``: where float64 gives the very same numbers, nothing was rounded, and no rounding excuses others."""
        rules = replace(rules, step=self.step)
        if rules.precise:
            self.refine(rounding=False)
        found = self._compared(value, rules, of, exact)
        decided = found.ok and found.within_eager_error and rules.exact and self.expected.has_exact
        if not decided or self.unstable or self.has_tf32 or self.expected.tf32_is_noise:
            return found
        if any(choice.ambiguous for choice in self.choices()):  # among equal values it may choose otherwise, and no rounding does
            return found
        others = (of(Expected(one)).value for one in chain((self.expected.value,), self.wide_roundings()))
        if not (left := far_off_without_reason(value, others, of(self.expected), replace(rules, far=self.unstable))):
            return found
        return replace(found, ok=False, within_eager_error=False, message=_FAR_OFF.format(left, "s are" if left > 1 else " is"))

    def _compared(self, value: Any, rules: Rules, of: Callable[[Expected], Expected], exact: bool, turned: bool = False) -> Comparison:
        """The same, where what rounding decides is not looked at closely. ``turned``: other signs were tried before."""

        def beside() -> Comparison:
            return compare(value, of(self.expected), replace(rules, far=self.unstable))

        found = beside()
        if found.plainly:
            return found
        while not found.ok and not (exact and self._same_in_float64()) and self._refine_further():
            found = beside()
        if not found.ok and self.unstable and rules.exact:
            by_float64 = compare(value, of(self.by_float64()), rules)
            found = replace(by_float64, within_eager_error=True) if by_float64.ok else found
        if not found.ok and rules.exact and (chosen := with_reference_positions(value, of(self.expected).value, self.choices)) is not value:
            found = compare(chosen, of(self.expected), rules)
        if not found.ok and rules.exact:
            others = (compare(value, of(one), rules) for one in self.other_ties())
            found = next((other for other in others if other.ok), found)
        if not found.ok and rules.exact:
            others = (compare(value, of(Expected(one)), rules) for one in self.rewritten(value))
            found = next((other for other in others if other.ok), found)
        if not found.ok and rules.scaled and not exact and same_shapes(value, of(self.expected).value):
            # Inputs of another kind saturate what is compared: whoever compares before that chooses as it likes, one element at a time.
            rotated_ties = [of(Expected(one)).value for _, one in self.rotated_ties()]
            found = compare(value, Expected(nearest_elements(value, rotated_ties)), rules) if rotated_ties else found
        if not found.ok and rules.exact and self.expected.has_exact and few_integer_mismatches(value, of(self.expected).value):
            others = (cast_like(self.expected.value, one) for one in self.decided_otherwise())
            tried = (compare(value, of(Expected(one)), replace(rules, precise=False)) for one in others)
            found = next((replace(one, within_eager_error=True) for one in tried if one.ok), found)
        if not found.ok and rules.exact and self.expected.has_exact and few_mismatches(value, of(self.expected).value):
            expected = replace(self.expected, equally_right=(*self.expected.equally_right, *self.decided_otherwise()))
            found = compare(value, of(expected), replace(rules, far=self.unstable))
        if not found.ok and rules.exact and not exact and self.expected.has_exact and partly_off(value, of(self.expected)):
            found = self._as_refused(value, rules, of, found)
        if not found.ok and rules.exact and not exact and (self.expected.has_exact or self.unstable):
            runs = [of(Expected(cast_like(self.expected.value, one))).value for one in self.all_roundings()]
            if might_be_rerounded(value, runs, of(self.expected), replace(rules, far=self.unstable)):
                found = replace(found, ok=True, message="", precision=False, within_eager_error=True)
        if not found.ok and rules.exact and not exact and not turned and not self.step and self.expected.exact is not None:
            found = self._with_turned_signs(value, rules, of, found)
        if not found.ok and rules.exact and not exact and not turned:
            found = self._with_chosen_sets(value, rules, of, found)
        if not found.ok and rules.exact and exact and self.expected.has_exact:
            # Numbers that come out the same in float64 may be decisions about others that do not, where the problem's own steps are ties.
            runs = [of(Expected(cast_like(self.expected.value, one))).value for one in self.ties_rerounded()]
            if might_be_rerounded(value, runs, of(self.expected), rules, seen=True):
                found = replace(found, ok=True, message="", precision=False, within_eager_error=True)
        if not found.ok and rules.exact and rules.scaled and same_shapes(value, of(self.expected).value):
            settled = with_finite_numbers(value, of(self.expected).value)
            if compare(settled, of(self.expected), replace(rules, far=self.unstable)).ok and self.overflows():
                found = Comparison(True, within_eager_error=True)
        if found.ok and exact and takes_position_twice(value, list(self.rotated_ties()), tolerance_for):
            found = Comparison(False, found.max_error, message=_TWICE)
        return found

    def _as_refused(self, value: Any, rules: Rules, of: Callable[[Expected], Expected], found: Comparison) -> Comparison:
        """Where the reference itself would be refused under another rounding, as where one of many heads turns over, a candidate may be off
        in the elements that are off there, or as a whole by what the reference is: few of all roundings were tried before."""
        rules, expected, left = replace(rules, far=self.unstable), of(self.expected), value
        refused = []
        for one in self.more_roundings():
            whole = cast_like(self.expected.value, one)
            other = of(Expected(whole)).value
            if not compare(other, expected, rules).ok:
                refused.append(whole)
                left = excuse_flips(left, other, expected, rules)
                if few_flips(left, value) and compare(left, expected, rules).ok:
                    return replace(found, ok=True, message="", precision=False, within_eager_error=True)
        if refused:
            beside = replace(self.expected, equally_right=(*self.expected.equally_right, *refused))
            again = compare(value, of(beside), rules)
            found = replace(again, within_eager_error=True) if again.ok else found
        return found

    def _with_turned_signs(self, value: Any, rules: Rules, of: Callable[[Expected], Expected], found: Comparison) -> Comparison:
        """With other signs of what is zero but for rounding, where outputs are off."""
        if not same_shapes(value, of(self.expected).value):
            return found
        other = turned_output(self.in_double_under, value, lambda one: of(Expected(one)).value)
        if other is None:
            return found
        moved = as_decided(value, of(Expected(other)).value, of(self.expected).exact)  # as if it had decided as the reference does
        again = self._compared(moved, rules, of, exact=False, turned=True)
        return replace(again, within_eager_error=True) if again.ok else found

    def _with_chosen_sets(self, value: Any, rules: Rules, of: Callable[[Expected], Expected], found: Comparison) -> Comparison:
        """With the positions that it gives out as those that an operator chose, where rounding alone tells them from its own."""
        positions = [t for t in nested.tensors(value) if t.dtype == torch.int64 and t.dim()]
        if not positions or not same_shapes(value, of(self.expected).value):
            return found
        self.in_double_under(exact := ExactNumbers())
        other = self.under(mode := ChosenSets(positions, self.step, exact.found, equal=rules.scaled))
        if other is None or not mode.taken:
            return found
        again = compare(value, of(Expected(other)), rules)
        return replace(again, within_eager_error=True) if again.ok else found

    def by_rounding(self, value: Any, rules: Rules) -> bool:
        """Whether a wrong output is no further off than rounding takes the reference's own, which is far: then it says nothing."""
        if not (self.unstable and self.expected.has_exact and rules.exact):
            return False
        others = tuple(self.rerounded())
        return compare(value, replace(self.expected, equally_right=others), replace(rules, precise=False)).ok

    def without_tf32(self) -> bool:
        """Whether the output can be compared with that of a run without TF32 alone. Known after :meth:`refine`."""
        return self.expected.tf32_is_noise and not self.unstable

    def _same_in_float64(self) -> bool:
        if not self.expected.has_exact:
            return False
        pairs = zip(nested.tensors(self.expected.value), nested.tensors(self.expected.exact), strict=True)
        return all(bool((mine.double() == exact.double()).all()) for mine, exact in pairs if not mine.is_complex())

    def by_float64(self) -> Expected:
        """Where the run is ``unstable``, eager's output is rounding alone, and float64's is right."""
        return Expected(cast_like(self.expected.value, self.expected.exact))
