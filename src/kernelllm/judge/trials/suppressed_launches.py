"""Do the outputs come from the candidate's kernels? It runs with every launch suppressed, and its outputs must turn wrong.

This comes last of all in a worker. What no kernel wrote may be taken for indices by an operator that follows: on a GPU that ends the
context, and the worker is of no further use.
"""

from __future__ import annotations

from kernelllm.core.types import Status
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.judge_settings import KERNELBENCH
from kernelllm.judge.trials import input_distribution
from kernelllm.judge.trials.compare import Rules, compare
from kernelllm.judge.trials.evidence import TrialEvidence
from kernelllm.judge.trials.first_runs import build
from kernelllm.judge.trials.reference import Reference
from kernelllm.judge.trials.schedule import TrialSeeds

_DISTRIBUTIONS = (input_distribution.PROBLEM, "normal")


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
    decided = None
    for distribution in _DISTRIBUTIONS:
        seed = seeds.derive("suppressed", distribution)
        inputs = input_distribution.draw(reference, distribution, seed, seed)
        if inputs is None:
            continue
        try:  # the candidate first: the reference may write into its inputs
            mine = process.run(inputs, seed, suppress=not backward, suppress_backward=backward)
        except CandidateFailure as failure:
            if failure.status is Status.TIMEOUT:
                raise
            return True
        with reference.buffers_restored():
            reference_run = reference.run(inputs, seed, refinable=False)
        if reference_run.error or not reference_run.finite:
            continue
        if not compare(mine.value, reference_run.expected, Rules(KERNELBENCH, tolerance, scaled=True)).ok:
            return True
        decided = False
    return decided
