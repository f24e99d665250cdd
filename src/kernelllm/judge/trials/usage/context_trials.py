"""Tries the same call in other contexts: in inference and evaluation mode, on the same tensors twice, many times in a row.

Nothing of that may change a result that does not change with the reference.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from kernelllm.core.types import Status
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess, CandidateRun
from kernelllm.judge.trials.autotune_configurations import configurations
from kernelllm.judge.trials.comparison.compare import Expected, Rules, compare
from kernelllm.judge.trials.first_runs import build
from kernelllm.judge.trials.reference_runs.failed_runs import failures_logged
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.problems.nested import mapped

_MOST, _SECONDS = 1000, 2.0
"""Calls in a row of a candidate that seems to count them, and how long they may take."""
_LEAST, _QUICK_MS = 200, 50.0
"""Calls that are made of one that takes so long at most, whatever else the machine has to do."""
_KEPT, _KEPT_TUNED = 0.9, 0.5
"""Share of a kernel's arithmetic below which a call did not compute what the call before did; configurations that take turns differ."""
_OTHER_WORK = "other kernels or operators run"
_SLOW_MS = 1000.0
"""A call that takes longer is made in the usual circumstances alone."""
_RULES = Rules(tolerance=1e-3, precise=False)
"""Of one candidate's own results: only the order of sums differs."""
_MODES = {True: "training", False: "evaluation"}
NAME = "silently_different"


def try_contexts(
    process: CandidateProcess, reference: Reference, seed: int, *, other_mode: bool, often: int
) -> list[str]:
    """``other_mode``: the reference gives the same in its other mode, so that the candidate must too; ``often``: call it so many
    times at least, where that is any.

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
        _try_twice(process, partial(called, mode=mode, inference=True), where, (earlier, before), (inputs, own))
    except CandidateFailure as failure:
        if failure.check == NAME and _changes_in_inference_mode(reference, inputs, seed):
            return []
        if failure.check:
            raise
        return [f"{where} ({_said(failure)})"] if failure.refused else []
    finally:
        build(process, reference)
    if own.wall_ms < _SLOW_MS:
        _try_gradients(process, called, {reference.training, mode}, (earlier, before), (inputs, own))
        build(process, reference)
    if often:
        times = int(min(_MOST, max(_SECONDS * 1000 / max(own.wall_ms, 1), max(_LEAST, often) if own.wall_ms < _QUICK_MS else 1)))
        never = reference.inputs(seed + 2)  # fresh memory may still hold the result of inputs that it was called with
        called(earlier, reference.training, times=times)
        late = called(never, reference.training)
        build(process, reference)
        _equal(f"after {times} calls", called(never, reference.training), late)
        _equal(f"after {times} calls", own, called(inputs, reference.training))  # what the file keeps outlives the model
    return []


def _try_gradients(
    process: CandidateProcess, called: Callable[..., CandidateRun], modes: set[bool], *calls: tuple[list[Any], CandidateRun]
) -> None:
    """On the same tensors twice, in each mode, with gradients enabled and without."""
    for mode, grad in itertools.product(sorted(modes), (False, True)):
        where = f"in {_MODES[mode]} mode, {'with' if grad else 'without'} gradients"
        try:
            process.load({}, mode)
            _try_twice(process, partial(called, mode=mode, grad=grad), where, *calls)
        except CandidateFailure as failure:
            if failure.check:
                raise
            if process.lost:
                return  # a refusal was told before


def _try_twice(
    process: CandidateProcess, called: Callable[..., CandidateRun], where: str, *calls: tuple[list[Any], CandidateRun]
) -> None:
    """Each inputs, whose results in the usual circumstances are known, and the last ones as the same tensors again. The first call may
    prepare parameters: the last one decides whether results are kept."""
    *others, (inputs, own) = calls
    for first, known in others:
        _equal(where, known, called(first, bare=True))
    new = called(inputs, apart=True, bare=True)
    _equal(where, own, new)
    again = called(inputs, same=True, apart=True, bare=True)
    _equal(f"{where}, on the same tensors again", own, again)
    turns = max(map(len, configurations(process).values()), default=1)
    kept = _less(new, again, _KEPT_TUNED if turns > 1 else _KEPT)
    if kept and kept != _OTHER_WORK and turns > 1 and not _less_in_turns(called, inputs, turns):
        return  # configurations with larger blocks compute more that is masked
    if kept == _OTHER_WORK and any(called(first, apart=True, bare=True).did == again.did for first, _ in others):
        return  # other inputs are answered by the same: what grew in the first call, say a longest length, has grown
    if kept:
        text = f"A second call on the same tensors computes less ({where}): {kept}. It is answered by an earlier result."
        raise CandidateFailure(Status.CHEATING, f"{text} Compute all of it in every call.", check="replay")


def _less_in_turns(called: Callable[..., CandidateRun], inputs: list[Any], turns: int) -> bool:
    """Whether as many calls as there are configurations, which take turns, compute less on the same tensors than on others together."""
    new = sum(called(inputs, apart=True, bare=True).kernel_flops for _ in range(turns))
    return sum(called(inputs, same=True, apart=True, bare=True).kernel_flops for _ in range(turns)) < _KEPT_TUNED * new


def _less(new: CandidateRun, again: CandidateRun, share: float) -> str:
    """What a call left out that the one before it on the same tensors did; empty where nothing is missing."""
    if again.launches < new.launches:
        return f"{again.launches} kernels are launched, not {new.launches}"
    if again.kernel_flops < share * new.kernel_flops:
        return f"its kernels do {again.kernel_flops:.0f} operations, not {new.kernel_flops:.0f}"
    return _OTHER_WORK if again.did != new.did else ""


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
