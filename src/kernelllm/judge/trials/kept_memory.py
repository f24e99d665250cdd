"""Memory that grows with every call: what a candidate keeps of each, in a list or by what came in, is never given back."""

from __future__ import annotations

from itertools import pairwise

from kernelllm.core.types import Status
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.transport import plain, values
from kernelllm.judge.trials.first_runs import build
from kernelllm.judge.trials.other_uses import NAME
from kernelllm.judge.trials.reference import Reference

_CALLS, _TIMES = 2, 3
"""Calls before memory is looked at, and how often it is: the first of them may fill what is then used again."""
_SMALL = 256
"""Bytes of a call that may be anything."""


def refuse_growing(process: CandidateProcess, reference: Reference, seed: int) -> None:
    """Raises CandidateFailure where each call leaves tensors alive that take as much as its output, or half of it, and the reference's
    calls do not."""
    if reference.heavy:
        return
    build(process, reference)
    held: list[int] = []
    output = 0
    for number in range(_TIMES * _CALLS):
        value = process.run(reference.inputs(seed + number), seed).value
        output = sum(t.numel() * t.element_size() for t in values.flatten(value))
        if number % _CALLS == _CALLS - 1:
            held.append(process.report().live_bytes)
    growth = min(after - before for before, after in pairwise(held)) / _CALLS
    if growth >= max(output / 2, _SMALL) and not _grows(reference, seed, growth):
        text = f"Each call leaves tensors of {growth:.0f} bytes alive, and the next one more. Keep nothing of a call: memory ends."
        raise CandidateFailure(Status.INCORRECT, text, check=NAME)


def _grows(reference: Reference, seed: int, growth: float) -> bool:
    """Whether the reference's calls keep as much, or others of this process do meanwhile."""
    before = plain.live_bytes()
    with reference.buffers_restored():
        for number in range(_CALLS):
            reference.run(reference.inputs(seed + number), seed, refinable=False)
    return plain.live_bytes() - before >= growth
