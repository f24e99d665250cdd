"""Compares the candidate's output and buffers of one trial with the reference's, with what the rules of a trial allow."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import chain
from typing import Any

from kernelllm.judge.isolation.candidate_process import CandidateProcess, CandidateRun
from kernelllm.judge.trials.comparison.compare import ROUNDINGS, Comparison, Expected, Rules, compare
from kernelllm.judge.trials.comparison.same_computation import cast_like, finite, shares_off
from kernelllm.judge.trials.inputs.input_distribution import (
    CLOSE,
    EQUAL,
    FAINT_NUMBERS,
    FAINT_SQUARES,
    FAR,
    HEAVY,
    OWN_VALUES,
    PRECISE,
    RARE,
    STEPS,
)
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.judge.trials.reference_runs.reference_run import ReferenceRun
from kernelllm.judge.trials.schedule import PlannedTrial
from kernelllm.judge.trials.state.parameter_states import AMPLIFIED, FAINT, FEW_LARGE

_TF32_STATISTICS = 1e-2
"""Tolerance of buffers that hold statistics of what eager itself convolved in TF32."""


_UNUSUAL = frozenset({HEAVY, FAR, EQUAL, FAINT_SQUARES, FAINT_NUMBERS, RARE, CLOSE})
"""Distributions on which the reference must be well-conditioned for a wrong output to say anything."""
_MUCH_ROUNDING = 64.0
"""A well-conditioned reference stays within the tolerance where values move by so many units of rounding."""
_MUCH_OFF, _FEW_OFF = 0.1, 0.01
"""The share of a tensor that is off where an output is wrong, and the share that rounding may turn over beside that."""
_FAR_TOLERANCE = 1e-3
"""Tolerance where a mean is far larger than the spread. Two passes take a tenth of it at most, one pass some thirty times as much."""


class OutputComparison:
    """Compares the trials of one candidate; remembers what they needed to be right."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.needed_tf32 = False
        """Whether an output was right only within the error of TF32 convolutions."""
        self._ill_conditioned: set[str] = set()
        """Distributions of inputs on which eager itself misses the tolerance."""

    def output(self, planned: PlannedTrial, mine: CandidateRun, reference: ReferenceRun) -> Comparison:
        """Against the reference as it ran, and in float64 where precision matters; with everything rounding may do before it is called
        wrong."""
        precise = planned.distribution in PRECISE and planned.state not in (FAINT, AMPLIFIED, FEW_LARGE)
        other = planned.distribution not in OWN_VALUES
        rules = Rules(self.rules.profile, self._tolerance(planned), other, precise, only_finite=other and not reference.finite)
        comparison = reference.compared(mine.value, rules, exact=planned.distribution == STEPS)
        if comparison.ok and not (written := self._inputs(planned, mine, reference, rules)).ok:
            comparison = written
        self.needed_tf32 |= comparison.ok and reference.has_tf32
        if comparison.within_eager_error:
            self._ill_conditioned.add(planned.distribution)
        return comparison

    def _inputs(self, planned: PlannedTrial, mine: CandidateRun, reference: ReferenceRun, rules: Rules) -> Comparison:
        """The inputs that the reference writes into, as they are after the run."""
        run, before = reference.inputs, reference.inputs_before
        if run is None or not (run.finite or planned.distribution in OWN_VALUES):
            return Comparison(True)
        found = run.compared([mine.mutated.get(i, given) for i, given in before.items()], rules, exact=planned.distribution == STEPS)
        if found.ok or (at := re.match(r"output\[(\d+)\]", found.message)) is None:
            return found
        position = [*before][int(at[1])]
        text = f"Input tensor {position + 1}, into which the reference writes, is another one after the call{found.message[at.end() :]}"
        return replace(found, message=text if position in mine.mutated else f"{text} The candidate leaves it as it was.")

    def undecided(
        self, planned: PlannedTrial, comparison: Comparison, reference: ReferenceRun, value: Any = None, *, beyond_first: bool = False
    ) -> bool:
        """Whether a wrong output says nothing: eager misses the tolerance on such inputs, and float64 is out of reach. On heavy-tailed
        inputs the reference must be well-conditioned.

        ``value``: the output; ``beyond_first``: another size was tried before, at which the candidate is right and rounding is not all."""
        if comparison.ok:
            return False
        if beyond_first and planned.distribution in OWN_VALUES and reference.by_rounding(value, self.rules):
            return True
        if planned.distribution in _UNUSUAL or planned.state in (AMPLIFIED, FEW_LARGE):
            rules = Rules(self.rules.profile, self._tolerance(planned), scaled=True, precise=False, only_finite=not reference.finite)
            roundings = ROUNDINGS if planned.distribution in (FAR, EQUAL, CLOSE) else _MUCH_ROUNDING
            if reference.inputs is not None and not well_conditioned(reference.inputs, rules, roundings):
                return True
            return not well_conditioned(reference, rules, roundings, value if roundings == _MUCH_ROUNDING else None)
        ill_conditioned = planned.distribution not in OWN_VALUES and planned.distribution in self._ill_conditioned
        return ill_conditioned and not reference.expected.has_exact

    def _tolerance(self, planned: PlannedTrial) -> float | None:
        return max(_FAR_TOLERANCE, self.rules.tolerance or 0.0) if planned.distribution == FAR else self.rules.tolerance

    def wrong_buffers(
        self, planned: PlannedTrial, process: CandidateProcess, reference: Reference, run: ReferenceRun, missing: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Buffers that differ after the run. ``missing``: names that the candidate lacks."""
        names = tuple(n for n in run.buffers if n not in missing)
        if planned.distribution not in OWN_VALUES and not finite(list(run.buffers.values())):
            names = ()  # of NaN or infinities in the output, statistics say nothing
        if not names:
            return ()
        theirs = process.state(names)
        tolerance = self.rules.tolerance
        if tolerance is None and reference.tf32_convolutions:
            tolerance = _TF32_STATISTICS
        rules = Rules(self.rules.profile, tolerance, scaled=planned.distribution == HEAVY, precise=False)

        def same(name: str, expected: Expected) -> bool:
            # Statistics of values up to a million round as these values do, though a mean of them may be near zero.
            deviation = run.buffers.get(name.removesuffix("mean") + "var") if name.endswith("running_mean") else None
            least = float(deviation.float().mean()) ** 0.5 if deviation is not None else 0.0
            return name in theirs and compare(theirs[name], expected, replace(rules, least_rms=least)).ok

        wrong = tuple(n for n in names if not same(n, Expected(run.buffers[n])))
        if not wrong:
            return ()
        # Deep in a network a statistic of few values may be off by as much as eager's own.
        run.refine(rounding=True)
        for _ in chain((None,), run.all_roundings()):  # each run leaves its buffers
            wrong = tuple(n for n in wrong if not same(n, reference.expected_buffer(n, run)))
            if not wrong:
                break
        return wrong


def well_conditioned(run: ReferenceRun, rules: Rules, roundings: float = _MUCH_ROUNDING, value: Any = None) -> bool:
    """Whether eager's output is within the tolerance of float64, and stays so where inputs and parameters move by so many roundings.

    ``value``: a wrong output. Where it is off in much of a tensor, the reference may be so in a few places: those it rounds otherwise."""
    expected = run.expected
    if not expected.has_exact or not _within(expected.value, expected, rules):
        return False
    wrong = {} if value is None else shares_off(value, expected.value, rules.absolute)
    much = [at for at, share in wrong.items() if share >= _MUCH_OFF]
    for one in run.perturbed(roundings):
        moved = cast_like(expected.value, one)
        turned = shares_off(moved, expected.value, rules.absolute)
        if not (_within(moved, expected, rules) or any(turned[at] <= _FEW_OFF for at in much)):
            return False
    return True


def _within(value: Any, expected: Expected, rules: Rules) -> bool:
    compared = compare(value, replace(expected, equally_right=()), rules)
    return compared.ok and not compared.within_eager_error
