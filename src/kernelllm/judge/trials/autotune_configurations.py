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
_SECONDS, _MOST = 2.0, 6
_RULES = Rules(tolerance=1e-2, precise=False)


def configurations(process: CandidateProcess) -> Configurations:
    """The configurations of all launches so far."""
    return {kernel.name: kernel.configurations for kernel in process.report().kernels if kernel.configurations}


def merged(known: Configurations, more: Configurations) -> Configurations:
    """Both: a configuration ran where it did in any of them."""
    return {
        kernel: {name: known.get(kernel, {}).get(name, False) or more.get(kernel, {}).get(name, False) for name in names}
        for kernel in {**known, **more} for names in [{**known.get(kernel, {}), **more.get(kernel, {})}]
    }  # fmt: skip


def _next(known: Configurations) -> int | None:
    """The place of a configuration that did not run among those of its kernel; None where all ran."""
    return next((number for of_kernel in known.values() for number, ran in enumerate(of_kernel.values()) if not ran), None)


def try_remaining(process: CandidateProcess, reference: Reference, seed: int, known: Configurations) -> Configurations:
    """Each launch has the next configuration: run until all had a turn. Where a file keeps what its first launch compiled, another worker
    begins with the next one. Those that ran. Raises CandidateFailure where an output is wrong."""
    if _next(known) is None:
        return known
    inputs = reference.inputs(seed)
    with reference.buffers_restored():
        expected = reference.run(inputs, seed)
    build(process, reference)
    end, restarted = time.monotonic() + _SECONDS, 0
    while (left := _next(known)) is not None and time.monotonic() < end:
        compared = expected.compared(process.run(inputs, seed).value, _RULES)
        if not compared.ok:
            raise CandidateFailure(Status.INCORRECT, f"Right in all trials, wrong with another configuration. {compared.message}")
        before, known = known, merged(known, configurations(process))
        if known == before:
            if restarted > _MOST or left == process.turn:
                break
            restarted += 1
            process.restart(left)
            build(process, reference)
    if restarted:
        process.restart(0)
    return known


def untried(at_original: Configurations, tried: Configurations) -> tuple[str, str] | None:
    """A kernel and one of its configurations that pruning leaves at the original sizes and at none of those tried."""
    for kernel, names in at_original.items():
        for name in names:
            if name not in tried.get(kernel, {}) and kernel in tried:
                return kernel, name
    return None
