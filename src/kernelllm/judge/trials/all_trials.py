"""Makes all trials of one candidate: at every size what the schedule says, until the first failure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from kernelllm.core.types import Candidate, Problem, Status
from kernelllm.judge.device_share import DeviceShare
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.judge_settings import KERNELBENCH
from kernelllm.judge.trials.comparison.compare import Rules, compare
from kernelllm.judge.trials.evidence import TrialEvidence
from kernelllm.judge.trials.first_runs import FirstRun, FirstRuns, build
from kernelllm.judge.trials.inputs import input_distribution
from kernelllm.judge.trials.output_comparison import OutputComparison
from kernelllm.judge.trials.reference_runs import tf32_allowance
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.judge.trials.schedule import PlannedTrial, TrialSeeds, schedule
from kernelllm.judge.trials.state.alternate_states import missing_but_used
from kernelllm.judge.trials.state.parameter_states import TF32_EXACT, ParameterStates
from kernelllm.judge.trials.trial import SizeUnderTest, conclude_trial, run_trial, same

_SPARE = 5
"""Times what one command may take that a worker must have left for trials which are made where a run is quick: others follow."""
_DISTRIBUTIONS = (input_distribution.PROBLEM, "normal")


def run_trials(
    problem: Problem, candidate: Candidate, processes: Sequence[CandidateProcess], references: Sequence[Reference], *, rules: Rules,
    seeds: int, share: DeviceShare, after_first_run: Callable[[], None],
) -> TrialEvidence:  # fmt: skip
    """Try the candidate beside each of ``references``; the evidence holds the first failure.

    ``processes``: one worker for all sizes, or one for each; ``after_first_run`` is called once the candidate has run.
    Raises ProblemError where the reference fails on the problem's own inputs.
    """
    evidence, comparison, trial_seeds = TrialEvidence(), OutputComparison(rules), TrialSeeds(problem, candidate)
    first_runs = FirstRuns(processes, references, trial_seeds, share)
    try:
        with first_runs.started() as started:
            for position, reference in enumerate(references):
                first = started[position]()
                if position == 0:
                    after_first_run()
                share.acquire_shared()
                process = first_runs.process(position)
                process.lease = share.lease(exclusive_allowed=position == len(references) - 1)
                size = SizeUnderTest(position, reference, process, trial_seeds, comparison, evidence)
                _run_size(size, first, max(seeds, 1), share)
    except CandidateFailure as failure:
        evidence.failure = failure.kept()
    return evidence


def _run_size(size: SizeUnderTest, first: FirstRun, seeds: int, share: DeviceShare) -> None:
    """All trials at one size."""
    size.evidence.state_missing = first.missing
    states = ParameterStates(size.reference, size.process, first.missing)
    try:
        for planned in _planned(size, seeds):
            if planned.is_first:
                conclude_trial(size, planned, first.take_call())
                _refuse_missing(size, first.missing)
            elif not (planned.only_if_fast and (size.reference.heavy or size.process.left < _SPARE * size.process.seconds)):
                _run_in_state(size, planned, states)
            share.let_exclusive_in()
        size.held.check(size.process)
        _refuse_changed_parameters(size, first.missing)
        if size.position == 0 and size.comparison.needed_tf32 and tf32_allowance.has_matrix_products(size.reference.ops):
            _run_in_state(size, PlannedTrial(state=TF32_EXACT, number=-1), states)
    finally:
        states.restore()


def _planned(size: SizeUnderTest, seeds: int) -> list[PlannedTrial]:
    reference = size.reference
    small = reference.device == "cpu" or bool(reference.sizes.changed)
    return schedule(size.position, seeds, size.comparison.rules.profile, small=small)


def _refuse_missing(size: SizeUnderTest, missing: tuple[str, ...]) -> None:
    """Raises CandidateFailure where the reference depends on parameters or buffers that the candidate lacks."""
    if size.position > 0 or not size.comparison.rules.exact:
        return
    names = missing_but_used(size.reference, missing, size.seeds.derive("missing"))
    if names:
        shown = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
        text = f"The output depends on the reference's parameters or buffers {shown}, which ModelNew lacks: others cannot be loaded."
        raise CandidateFailure(Status.INCORRECT, f"{text} Keep their names and shapes.")


def _refuse_changed_parameters(size: SizeUnderTest, missing: tuple[str, ...]) -> None:
    """Raises CandidateFailure where the trials so far changed the candidate's parameters, and the reference's are as they were."""
    if size.position > 0 or not size.comparison.rules.exact:
        return
    mine = {name: t.detach() for name, t in size.reference.model.named_parameters(remove_duplicate=False) if name not in missing}
    if not mine or size.reference.changes_parameters:
        return
    seed = size.seeds.derive("parameters")
    size.process.run(size.reference.inputs(seed), seed)  # the last trial may have put back what it changed
    theirs = size.process.state(tuple(mine))
    changed = [name for name, tensor in mine.items() if name in theirs and not same(theirs[name], tensor)]
    if changed:
        text = f"ModelNew writes into the parameter {changed[0]} when it runs; the reference does not. Keep what is made of it elsewhere."
        raise CandidateFailure(Status.INCORRECT, text)


def _run_in_state(size: SizeUnderTest, planned: PlannedTrial, states: ParameterStates) -> None:
    wall_ms = size.evidence.runs[-1].wall_ms if size.evidence.runs else 0.0
    if states.possible(planned.state, wall_ms):
        with states.applied(planned.state, size.seeds.derive("state", size.position, 0)):
            run_trial(size, planned)


def depends_on_kernels(
    process: CandidateProcess, reference: Reference, seeds: TrialSeeds, evidence: TrialEvidence, tolerance: float | None
) -> bool | None:
    """False when outputs stay right without launches on all inputs tried, or gradients without those of the backward; None when that
    could not be decided.

    The candidate is built anew at the size of ``reference``. Raises CandidateFailure where that fails, or takes too long.
    """
    if not evidence.launched_kernels or evidence.reference_constant(tolerance):
        return None
    build(process, reference)
    parts = (False, True) if evidence.backward_launches else (False,)
    found = [_depends(process, reference, seeds, tolerance, backward=part) for part in parts]
    return False if False in found else None if None in found else True


def _depends(process: CandidateProcess, reference: Reference, seeds: TrialSeeds, tolerance: float | None, *, backward: bool) -> bool | None:
    """Memory that nobody wrote holds noise of two kinds: a single boolean is right in one of them by chance."""
    decided = None
    if process.lost:
        build(process, reference)
    for distribution, other_noise in itertools.product(_DISTRIBUTIONS, (False, True)):
        seed = seeds.derive("suppressed", distribution)
        inputs = input_distribution.draw(reference, distribution, seed, seed)
        if inputs is None:
            continue
        try:  # the candidate first: the reference may write into its inputs
            mine = process.run(inputs, seed, suppress=not backward, suppress_backward=backward, other_noise=other_noise)
        except CandidateFailure as failure:
            if failure.status is Status.TIMEOUT:
                raise
            return True
        with reference.buffers_restored():
            reference_run = reference.run(inputs, seed, refinable=False)
        if not reference_run.is_informative:
            continue
        if not compare(mine.value, reference_run.expected, Rules(KERNELBENCH, tolerance, scaled=True)).ok:
            return True
        decided = False
    return decided
