"""Sizes of 1, each in turn. The sets of sizes of the trials have none, and users have: a batch of one, one row, one class."""

from __future__ import annotations

from collections.abc import Sequence

from kernelllm.core.types import Status
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.trials.compare import Rules
from kernelllm.judge.trials.first_runs import build
from kernelllm.judge.trials.other_uses import NAME, OtherUses
from kernelllm.judge.trials.output_comparison import well_conditioned
from kernelllm.judge.trials.same_computation import same_structure
from kernelllm.judge.trials.sampled_programs import PreparedRun
from kernelllm.problems.readable_sizes import readable

_RULES = Rules(tolerance=1e-2, scaled=True, precise=False)


def try_sizes_of_one(process: CandidateProcess, runs: Sequence[PreparedRun]) -> OtherUses:
    """What the candidate refuses. Raises CandidateFailure where it is silently different, or leaves its tensors' memory."""
    uses = OtherUses()
    for prepared in runs:
        what = f"with {_ones(prepared)}"
        try:
            build(process, prepared.reference)
            value = process.run(prepared.inputs, prepared.reference.seed).value
        except CandidateFailure as failure:
            if failure.message.startswith(("illegal memory access", "a race:")):
                failure.message, failure.check = f"Right at the sizes tried; {what}: {failure.message}", NAME
                raise
            uses.note(failure, what)
            if not failure.refused:
                uses.warnings.append(f"It fails {what}: {failure.message.partition(chr(10))[0][:160]}")
            if failure.status in (Status.TIMEOUT, Status.OUT_OF_MEMORY):
                break
            continue
        compared = prepared.run.compared(value, _RULES)
        if not compared.ok and (not same_structure(prepared.run.expected.value, value) or well_conditioned(prepared.run, _RULES)):
            text = f"Silently different {what}: {compared.message} Follow it, or raise an error."
            raise CandidateFailure(Status.INCORRECT, text, check=NAME)
    return uses


def _ones(prepared: PreparedRun) -> str:
    reference = prepared.reference
    names = readable(reference.problem.source)
    return ", ".join(f"{names.get(name, name)} = {new}" for name, (_, new) in reference.sizes.changed.items() if _has_one(new))


def _has_one(value: object) -> bool:
    return any(map(_has_one, value)) if isinstance(value, tuple | list) else value == 1
