"""Tries sizes of 1 and of 0, each in turn, and sizes between numbers that the candidate compares with.

The sets of sizes of the trials have none, and users have: a batch of one, one row, no row.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from kernelllm.core.types import Status
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.observation import WatchedOperators
from kernelllm.judge.transport import values
from kernelllm.judge.trials.comparison.compare import Rules
from kernelllm.judge.trials.comparison.same_computation import same_structure
from kernelllm.judge.trials.first_runs import build
from kernelllm.judge.trials.output_comparison import well_conditioned
from kernelllm.judge.trials.sampled_programs import PreparedRun
from kernelllm.judge.trials.usage.usage_trials import NAME, UsageFindings
from kernelllm.problems.readable_sizes import readable

_RULES = Rules(tolerance=1e-2, scaled=True, precise=False)
_CLOSER = Rules(scaled=True, precise=False)
"""At sizes that are no smaller than those of the trials."""
_SECONDS = 6.0
"""What sizes may take on a GPU, for each of which it may have to compile: another is begun within so many seconds."""


def try_unit_sizes(
    process: CandidateProcess, runs: Sequence[PreparedRun], length: int | None = 1, watched: list[WatchedOperators] | None = None
) -> UsageFindings:  # fmt: skip
    """What the candidate refuses. Raises CandidateFailure where it is silently different, or leaves its tensors' memory. ``watched``: gets
    the operators of torch that ran."""
    uses, end = UsageFindings(), time.monotonic() + _SECONDS
    for prepared in runs:
        if process.device != "cpu" and time.monotonic() > end:
            break
        what = _where(prepared, length)
        if not any(tensor.numel() for tensor in values.flatten(prepared.run.expected.value)):  # of every second of one number, nothing
            continue
        try:
            build(process, prepared.reference)
            run = process.run(prepared.inputs, prepared.reference.seed, apart=watched is not None)
            value = run.value
            if watched is not None and not prepared.reference.gradients:
                watched.append(prepared.reference.watched_operators(what, run.ops, run.flops))
        except CandidateFailure as failure:
            if failure.message.startswith(("illegal memory access", "a race:")):
                failure.message, failure.check = f"Right at the sizes tried; {what}: {failure.message}", NAME
                raise
            uses.note(failure, what)
            if length is None and failure.status is Status.TIMEOUT and process.device == "cpu":  # which interprets a GPU's kernels
                uses.ignored.append(f"It took too long here {what}: what it does there nobody saw.")
            elif not failure.refused:
                uses.warnings.append(f"It fails {what}: {failure.message.partition(chr(10))[0][:160]}")
            if failure.status in (Status.TIMEOUT, Status.OUT_OF_MEMORY):
                break
            continue
        _refuse_other(prepared, value, what, _RULES if length else _CLOSER)
    return uses


def try_empty_sizes(process: CandidateProcess, runs: Sequence[PreparedRun]) -> UsageFindings:
    """Tensors without elements: what fails there says so, and is told. Raises CandidateFailure where the candidate is silently different.

    Watched, since only so memory that nobody writes is no zero by luck."""
    uses = UsageFindings()
    for prepared in runs:
        what = _where(prepared, 0)
        try:
            build(process, prepared.reference)
            value = process.run(prepared.inputs, prepared.reference.seed, apart=True).value
        except CandidateFailure as failure:
            uses.limits.append(f"{what} ({failure.message.partition(chr(10))[0].removeprefix('The candidate raised ')[:160]})")
        else:
            _refuse_other(prepared, value, what)
    return uses


def try_rare_sizes(process: CandidateProcess, runs: Sequence[PreparedRun]) -> UsageFindings:
    """Another number of heads or the like, or rows longer than a block: a silently different result is a warning, since the problem never
    has them."""
    uses = UsageFindings()
    for prepared in runs:
        what = _where(prepared, None)
        try:
            build(process, prepared.reference)
            value = process.run(prepared.inputs, prepared.reference.seed).value
            _refuse_other(prepared, value, what, _CLOSER)
        except CandidateFailure as failure:
            told = failure.message.partition("\n")[0]
            silent = failure.status is Status.INCORRECT or told.startswith("illegal memory access")
            if silent:
                uses.warnings.append(told)
            else:
                uses.limits.append(f"{what} ({told.removeprefix('The candidate raised ')[:160]})")
            if failure.status in (Status.TIMEOUT, Status.OUT_OF_MEMORY):
                break
    return uses


def _refuse_other(prepared: PreparedRun, value: object, what: str, rules: Rules = _RULES) -> None:
    rules = replace(rules, only_finite=not prepared.run.finite)
    compared = prepared.run.compared(value, rules)
    if not compared.ok and (not same_structure(prepared.run.expected.value, value) or well_conditioned(prepared.run, rules)):
        text = f"Silently different {what}: {compared.message} Follow it, or raise an error."
        raise CandidateFailure(Status.INCORRECT, text, check=NAME)


def _where(prepared: PreparedRun, length: int | None) -> str:
    """``length``: of the sizes that are named; None: of all that are not the problem's own."""
    reference = prepared.reference
    names = readable(reference.problem.source)
    new_sizes = {name: new for name, (_, new) in reference.sizes.changed.items() if length is None or _holds(new, length)}
    changed = [f"{names.get(name, name)} = {new}" for name, new in new_sizes.items()]
    return f"with {', '.join(changed)}"


def _holds(value: object, length: int) -> bool:
    return any(_holds(one, length) for one in value) if isinstance(value, tuple | list) else value == length
