"""All trials of one candidate: at every size what the schedule says, until the first failure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelllm.core.types import Candidate, Problem
from kernelllm.judge.device_share import DeviceShare
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.settings import STRICT
from kernelllm.judge.trials import tf32_allowance
from kernelllm.judge.trials.compare import Rules
from kernelllm.judge.trials.evidence import TrialEvidence
from kernelllm.judge.trials.first_runs import FirstRun, FirstRuns
from kernelllm.judge.trials.output_comparison import OutputComparison
from kernelllm.judge.trials.parameter_states import TF32_EXACT, ParameterStates
from kernelllm.judge.trials.reference import Reference
from kernelllm.judge.trials.schedule import PlannedTrial, schedule
from kernelllm.judge.trials.suppressed_launches import depends_on_kernels
from kernelllm.judge.trials.trial import SizeUnderTest, conclude_trial, run_trial
from kernelllm.judge.trials.trial_seeds import TrialSeeds


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
        for planned in schedule(size.position, seeds, variants=size.comparison.rules.profile == STRICT):
            if planned.is_first:
                conclude_trial(size, planned, first.take_call())
            elif not (planned.only_if_fast and size.reference.heavy):
                _run_in_state(size, planned, states)
            share.let_exclusive_in()
        if size.position == 0:
            if size.comparison.needed_tf32 and tf32_allowance.hides_products(size.reference.ops):
                _run_in_state(size, PlannedTrial(state=TF32_EXACT, number=-1), states)
            size.evidence.depends_on_kernels = depends_on_kernels(size)
    finally:
        states.restore()


def _run_in_state(size: SizeUnderTest, planned: PlannedTrial, states: ParameterStates) -> None:
    if states.possible(planned.state):
        with states.applied(planned.state, size.seeds.derive("state", size.position, 0)):
            run_trial(size, planned)
