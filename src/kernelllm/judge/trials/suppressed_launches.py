"""Do the outputs come from the candidate's kernels? It runs with every launch suppressed, and its outputs must turn wrong."""

from __future__ import annotations

from kernelllm.core.types import Status
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.settings import KERNELBENCH
from kernelllm.judge.trials import input_distribution
from kernelllm.judge.trials.compare import Rules, compare
from kernelllm.judge.trials.trial import SizeUnderTest

_DISTRIBUTIONS = (input_distribution.PROBLEM, "normal")


def depends_on_kernels(size: SizeUnderTest) -> bool | None:
    """False when outputs stay right without launches on all inputs tried; None when that could not be decided.

    Raises CandidateFailure where the candidate runs into its time limit.
    """
    tolerance = size.comparison.rules.tolerance
    if not size.evidence.launched_kernels or size.evidence.reference_constant(tolerance):
        return None
    decided = None
    for distribution in _DISTRIBUTIONS:
        seed = size.seeds.derive("suppressed", distribution)
        inputs = input_distribution.draw(size.reference, distribution, seed, seed)
        if inputs is None:
            continue
        try:  # the candidate first: the reference may write into its inputs
            mine = size.process.run(inputs, seed, suppress=True)
        except CandidateFailure as failure:
            if failure.status is Status.TIMEOUT:
                raise
            return True
        reference_run = size.reference.run(inputs, seed, refinable=False)
        if reference_run.error or not reference_run.finite:
            continue
        if not compare(mine.value, reference_run.expected, Rules(KERNELBENCH, tolerance, scaled=True)).ok:
            return True
        decided = False
    return decided
