"""Tries two models with different parameters, as a user has several layers of one kind: what one keeps must not reach the other."""

from __future__ import annotations

from typing import Any

import torch

from kernelllm.core.types import Finding, Severity, Status
from kernelllm.judge.caller_settings import FROZEN
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.trials.comparison.compare import Expected, Rules, compare
from kernelllm.judge.trials.first_runs import build
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.judge.trials.schedule import INIT_SEED
from kernelllm.judge.trials.state.alternate_states import State, alternate_state
from kernelllm.judge.trials.usage.usage_trials import NAME
from kernelllm.problems.nested import computable

_RULES = Rules(tolerance=1e-2, precise=False)


def try_two_models(process: CandidateProcess, reference: Reference, seed: int) -> list[Finding]:
    """Call two models of the candidate in turn, with different parameters: the second one is built, then copied.

    Both get as many writes to their parameters. Raises CandidateFailure where one is wrong. What cannot be copied is told."""
    saved = {name: tensor.clone() for name, tensor in reference.state().items()}
    other = alternate_state(reference, seed)
    same = all(torch.equal(computable(other[name]), computable(tensor)) for name, tensor in saved.items())
    if reference.draws or reference.heavy or build(process, reference):
        return []
    if same:
        return _copy_alone(process, reference, seed)
    inputs, buffers = reference.inputs(seed), {name: saved[name] for name in reference.buffers()}
    own = process.run(inputs, seed).value
    process.construct(reference.init_args, INIT_SEED, gradients=reference.gradients, there=process.device != "cpu", beside=True)
    where = "where two models with different parameters are used"
    _in_turn(process, reference, saved, other, seed, own, where)
    process.load(saved, reference.training)
    process.run(inputs, seed)
    process.load(buffers, reference.training)
    try:
        process.construct(reference.init_args, INIT_SEED, gradients=reference.gradients, copied=True)
    except CandidateFailure as failure:
        build(process, reference)
        return [_not_copied(failure)]
    where = "where a model and a copy of it (copy.deepcopy) get different parameters"
    _in_turn(process, reference, saved, other, seed, own, f"{where} and need no gradients", setting=FROZEN)
    process.load(buffers, reference.training, swap=True)  # the copy again
    _in_turn(process, reference, saved, other, seed, own, where)
    return []


def _copy_alone(process: CandidateProcess, reference: Reference, seed: int) -> list[Finding]:
    """The copy of a model that has no parameters; raises CandidateFailure where it is another function."""
    inputs = reference.inputs(seed)
    own = process.run(inputs, seed).value
    try:
        process.construct(reference.init_args, INIT_SEED, gradients=reference.gradients, copied=True)
        value = process.run(inputs, seed).value
    except CandidateFailure as failure:
        build(process, reference)
        return [_not_copied(failure)]
    if not compare(value, Expected(own), _RULES).ok:
        text = "Silently different where a copy of the model (copy.deepcopy) is called: something does not come along, or stays shared."
        raise CandidateFailure(Status.INCORRECT, text, check=NAME)
    return []


def _not_copied(failure: CandidateFailure) -> Finding:
    said = failure.message.partition("\n")[0].removeprefix("The candidate raised ")[:160]
    return Finding(check="limits", message=f"It cannot be copied (copy.deepcopy): {said}", severity=Severity.INFO)


def _in_turn(
    process: CandidateProcess, reference: Reference, saved: State, other: State, seed: int, own: Any, where: str, setting: str = ""
) -> None:
    """The second model, which is active, with other parameters, then the first, which stays."""
    inputs, buffers = reference.inputs(seed), {name: saved[name] for name in reference.buffers()}
    process.load(other, reference.training)
    second = process.run(inputs, seed, setting=setting).value
    process.load(buffers, reference.training, swap=True)  # runs change them
    first = process.run(inputs, seed, setting=setting).value
    if not _right(reference, saved, saved, seed, own):
        return  # rounding decides, say: it says nothing of two
    for which, state, value in (("second", other, second), ("first", saved, first)):
        if not _right(reference, state, saved, seed, value):
            text = f"Silently different {where}: the result of the {which} is wrong."
            text += " Keep what is made of parameters in the model that they are of."
            raise CandidateFailure(Status.INCORRECT, text, check=NAME)


def _right(reference: Reference, state: State, saved: State, seed: int, value: Any) -> bool:
    reference.load(state)
    try:
        run = reference.run(reference.inputs(seed), seed)
        undecided = not run.finite or bool(run.error)
        return undecided or run.compared(value, _RULES).ok or run.by_rounding(value, _RULES)
    finally:
        reference.load(saved)
