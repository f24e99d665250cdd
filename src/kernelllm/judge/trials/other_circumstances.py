"""The same call in circumstances that users have and problems do not: in inference and evaluation mode, on the same tensors twice, many
times in a row. Nothing of that may change a result that does not change with the reference."""

from __future__ import annotations

from typing import Any

import torch

from kernelllm.core.types import Status
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess, CandidateRun
from kernelllm.judge.trials.compare import Expected, Rules, compare
from kernelllm.judge.trials.failed_runs import failures_logged
from kernelllm.judge.trials.first_runs import build
from kernelllm.judge.trials.reference import Reference
from kernelllm.problems.nested import mapped

_MOST, _SECONDS = 1000, 2.0
"""Calls in a row of a candidate that seems to count them, and how long they may take."""
_RULES = Rules(tolerance=1e-3, precise=False)
"""Of one candidate's own results: only the order of sums differs."""
_MODES = {True: "training", False: "evaluation"}
NAME = "silently_different"


def try_circumstances(
    process: CandidateProcess, reference: Reference, seed: int, *, other_mode: bool, often: bool
) -> list[str]:
    """``other_mode``: the reference gives the same in its other mode, so that the candidate must too; ``often``: call it many times.

    The candidate is built anew before and after. The limits that it names. Raises CandidateFailure where it is silently different.
    """
    if reference.draws:
        return []
    inputs, earlier, buffers = reference.inputs(seed), reference.inputs(seed + 1), reference.buffers()
    mode = reference.training is not other_mode
    missing = build(process, reference)
    kept = {name: tensor.clone() for name, tensor in buffers.items() if name not in missing}

    def called(inputs: list[Any], mode: bool, **flags: Any) -> CandidateRun:
        if kept:  # runs may change them
            process.load(kept, mode)
        return process.run(inputs, seed, **flags)

    before, own = called(earlier, reference.training), called(inputs, reference.training)
    where = f"in inference mode{f' and in {_MODES[mode]} mode' if other_mode else ''}"
    try:
        process.load({}, mode)
        _equal(where, before, called(earlier, mode, inference=True))
        _equal(where, own, called(inputs, mode, inference=True))
        again = called(inputs, mode, inference=True, same=True)
        _equal(f"{where}, on the same tensors again", own, again)
        if own.launches and not again.launches:
            text = "A second call on the same tensors is answered without launching a kernel: by an earlier result."
            raise CandidateFailure(Status.CHEATING, f"{text} Launch the kernels in every call.", check="replay")
    except CandidateFailure as failure:
        if failure.check == NAME and _changes_in_inference_mode(reference, inputs, seed):
            return []
        if failure.check:
            raise
        return [f"{where} ({_said(failure)})"] if failure.refused else []
    finally:
        build(process, reference)
    if often:
        times = int(min(_MOST, _SECONDS * 1000 / max(own.wall_ms, 1)))
        never = reference.inputs(seed + 2)  # fresh memory may still hold the result of inputs that it was called with
        called(earlier, reference.training, times=times)
        late = called(never, reference.training)
        build(process, reference)
        _equal(f"after {times} calls", called(never, reference.training), late)
        _equal(f"after {times} calls", own, called(inputs, reference.training))  # what the file keeps outlives the model
    return []


def _changes_in_inference_mode(reference: Reference, inputs: list[Any], seed: int) -> bool:
    """Whether the reference too gives something else there, as torch 2.11 does with derivatives of ``torch.func``."""
    usual = found = None
    with failures_logged("no run of the reference in inference mode"), reference.buffers_restored(), reference.calling(seed):
        usual = reference.called(reference.model)(*mapped(inputs, torch.Tensor.clone))
        with torch.inference_mode():
            found = reference.called(reference.model)(*mapped(inputs, torch.Tensor.clone))
    return not compare(found, Expected(usual), _RULES).ok


def _equal(what: str, own: CandidateRun, run: CandidateRun) -> None:
    if not compare(run.value, Expected(own.value), _RULES).ok:
        text = f"Silently different {what}: the result is another one than before, and nothing is said."
        raise CandidateFailure(Status.INCORRECT, text, check=NAME)


def _said(failure: CandidateFailure) -> str:
    return failure.message.partition("\n")[0].removeprefix("The candidate raised ")[:160]
