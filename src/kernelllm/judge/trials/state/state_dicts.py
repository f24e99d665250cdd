"""Loads the reference's ``state_dict`` as users do, strictly and by the model's own method, also where a tensor has several names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from kernelllm.core.types import Finding, Severity, Status
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.transport import protocol as p
from kernelllm.judge.trials.first_runs import build
from kernelllm.judge.trials.inputs.memory_layouts import permuted_layout
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.judge.trials.reference_runs.reference_results import is_wrong
from kernelllm.judge.trials.schedule import INIT_SEED
from kernelllm.judge.trials.state.alternate_states import State, alternate_state
from kernelllm.problems.nested import computable

NAME = "state_dict"
_STAYS = "It goes on with the parameters that it had where load_state_dict(assign=True), or a user, puts others in their place."
_LAID = "It is wrong where a parameter lies otherwise in memory (transposed, channels last): use its strides, or call .contiguous()."
_IMAGES = 4
"""Dimensions of parameters that ``model.to(memory_format=torch.channels_last)`` puts into another order."""
_DATA = (
    "It takes no notice of parameters that change through .data, which no version counts: write into them under torch.no_grad() instead, "
    "as optimizers and load_state_dict do."
)


def try_state_dict(process: CandidateProcess, reference: Reference, seed: int) -> list[Finding]:
    """Warnings. Raises CandidateFailure where the model takes a state, and computes with another one."""
    missing = build(process, reference)
    built = process.construct(reference.init_args, INIT_SEED, gradients=reference.gradients)
    saved = {name: tensor.clone() for name, tensor in reference.state().items()}
    kept = reference.model.state_dict()
    if process.renamed:
        text = f"It saves other names than the reference's {min(process.renamed)}; those it loads by a load_state_dict of its own."
        return [Finding(check="limits", message=text, severity=Severity.INFO)]
    if missing or not built.state or not kept.keys() <= saved.keys():  # a state of the reference's own kind
        return []
    process.load(saved, reference.training)
    warnings = list(_shared_otherwise(reference.model, built))
    other = {name: tensor for name, tensor in alternate_state(reference, seed).items() if name in kept}
    inputs, written = reference.inputs(seed), {**saved, **other}
    process.load(written, reference.training)
    own = process.run(inputs, seed).value
    buffers = reference.buffers()  # runs change them
    warnings += _saved_otherwise(process, {name: tensor for name, tensor in written.items() if name in kept and name not in buffers})
    process.load(saved, reference.training)
    try:
        process.load(other, reference.training, by="itself")
    except CandidateFailure as failure:
        said = re.sub(r"\s+", " ", failure.message.partition("\nTraceback")[0].removeprefix("The candidate raised "))
        warnings.append(f"ModelNew does not load the reference's state_dict as it is (strict=True): {said[:240]}")
    else:
        if not reference.draws and is_wrong(process.run(inputs, seed).value, own):
            text = "Right with parameters that were written into its tensors, wrong after ModelNew.load_state_dict() loaded them."
            raise CandidateFailure(Status.INCORRECT, f"{text} Leave that method as torch.nn.Module has it.", check="silently_different")
    found = [Finding(check=NAME, message=text, severity=Severity.WARN) for text in warnings]
    if not (reference.draws or reference.heavy) and _overlooks_data(process, reference, inputs, saved, written, own, seed):
        found.append(Finding(check="limits", message=_DATA, severity=Severity.INFO))
    if not (reference.draws or reference.heavy or warnings):
        found += _assigned(process, reference, inputs, saved, other, own, seed)
    return found


def _saved_otherwise(process: CandidateProcess, written: State) -> Iterator[str]:
    """What the model's own ``state_dict`` gives, where its parameters hold what is ``written``."""
    try:
        given = process.state(tuple(written), by_itself=True)
    except CandidateFailure:  # whoever saves it would see that
        return
    for name, tensor in given.items():
        alike = tensor.shape == written[name].shape and tensor.dtype == written[name].dtype
        if alike and not torch.equal(computable(tensor), computable(written[name])):
            yield f"Its state_dict() gives another {name} than it computes with: what is saved is not what was trained."
            return


def _overlooks_data(
    process: CandidateProcess, reference: Reference, inputs: list[Any], before: State, written: State, own: Any, seed: int
) -> bool:
    """Whether parameters that change through ``.data``, right after a run, leave the result as it was."""
    process.load(before, reference.training)
    process.run(inputs, seed)
    process.load(written, reference.training, by="data")
    return is_wrong(process.run(inputs, seed).value, own)


def _assigned(
    process: CandidateProcess, reference: Reference, inputs: list[Any], before: State, other: State, own: Any, seed: int
) -> list[Finding]:
    """A warning where other parameters take the place of the model's, and it goes on with those before."""
    process.load(before, reference.training)
    process.run(inputs, seed)
    process.load({name: tensor for name, tensor in before.items() if name not in other}, reference.training)  # runs change buffers
    laid = {name: permuted_layout(tensor) for name, tensor in other.items()}
    try:
        process.load(laid, reference.training, by="assign")
        wrong, text = is_wrong(process.run(inputs, seed).value, own), _STAYS
        if wrong and any(laid[name] is not tensor for name, tensor in other.items()):
            process.load({name: tensor for name, tensor in before.items() if name not in other}, reference.training)
            process.load(other, reference.training, by="assign")
            text = _STAYS if is_wrong(process.run(inputs, seed).value, own) else _LAID
    except CandidateFailure as failure:
        said = failure.message.partition("\n")[0].removeprefix("The candidate raised ")[:160]
        return [Finding(check="limits", message=f"It refuses load_state_dict(assign=True): {said}", severity=Severity.INFO)]
    if text == _LAID and all(tensor.dim() < _IMAGES for tensor in other.values()):  # a matrix is transposed by few
        return [Finding(check="limits", message=text, severity=Severity.INFO)] if wrong else []
    return [Finding(check=NAME, message=text, severity=Severity.WARN)] if wrong else []


def _shared_otherwise(model: torch.nn.Module, built: p.Constructed) -> Iterator[str]:
    """Names that are one tensor in the reference, and several in the candidate."""
    mine: Mapping[str, str] = {entry.name: entry.shares for entry in built.state}
    groups: dict[int, list[str]] = {}
    for name, tensor in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(tensor), []).append(name)
    for names in groups.values():
        if len({mine[name] for name in names if name in mine}) > 1:
            yield f"{' and '.join(names[:4])} are one parameter of the reference, and several of ModelNew: training changes one alone."
