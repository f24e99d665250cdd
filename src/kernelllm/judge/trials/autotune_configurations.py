"""Tries configurations of autotuned kernels that no trial came to, though pruning left them: a GPU may find any of them the fastest."""

from __future__ import annotations

import time
from collections.abc import Mapping

from kernelllm.core.types import Status
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.trials.comparison.compare import Rules
from kernelllm.judge.trials.first_runs import build
from kernelllm.judge.trials.reference_runs.reference import Reference

Configurations = Mapping[str, Mapping[str, bool]]
"""Kernel to its configurations, and whether each ran."""
_SECONDS = 2.0
_RULES = Rules(tolerance=1e-2, precise=False)


def configurations(process: CandidateProcess) -> Configurations:
    """The configurations of all launches so far."""
    return {kernel.name: kernel.configurations for kernel in process.report().kernels if kernel.configurations}


def try_remaining(process: CandidateProcess, reference: Reference, seed: int, known: Configurations) -> None:
    """Each launch has the next configuration: run until all had a turn. Raises CandidateFailure where an output is wrong."""
    runs = max((sum(not ran for ran in of_kernel.values()) for of_kernel in known.values()), default=0)
    if not runs:
        return
    inputs = reference.inputs(seed)
    with reference.buffers_restored():
        expected = reference.run(inputs, seed)
    build(process, reference)
    end = time.monotonic() + _SECONDS
    while runs and time.monotonic() < end:
        compared = expected.compared(process.run(inputs, seed).value, _RULES)
        if not compared.ok:
            raise CandidateFailure(Status.INCORRECT, f"Right in all trials, wrong with another configuration. {compared.message}")
        runs -= 1


def untried(at_original: Configurations, tried: Configurations) -> tuple[str, str] | None:
    """A kernel and one of its configurations that pruning leaves at the original sizes and at none of those tried."""
    for kernel, names in at_original.items():
        for name in names:
            if name not in tried.get(kernel, {}) and kernel in tried:
                return kernel, name
    return None
