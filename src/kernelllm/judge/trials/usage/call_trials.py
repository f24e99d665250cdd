"""Tries calls that users make and problems do not: at two sizes, with hooks, arguments by name or left out, results written into.

A clear error is fine.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch

from kernelllm.core.errors import ProblemError
from kernelllm.core.types import Finding, Severity, Status
from kernelllm.judge.hooks import hooked, negated, parts_hooked
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.transport import values
from kernelllm.judge.trials.first_runs import build
from kernelllm.judge.trials.reference_runs.failed_runs import failures_logged
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.judge.trials.reference_runs.reference_results import differs, is_wrong, result
from kernelllm.problems.bounds import LOWEST, at_bounds
from kernelllm.problems.inputs import variant
from kernelllm.problems.nested import mapped

NAME, LAYOUT = "silently_different", "output_layout"
_OF_THE_DEVICE = ("attention", "convolution", "lstm", "gru", "rnn", "fft")
"""Parts of the names of operators whose results lie in memory otherwise on a GPU than on a CPU."""
_SPLIT = ("scaled_dot_product_attention", "MultiheadAttention")
"""What a CPU may run as products and a softmax."""
_MOST = 2**22
"""Elements of the inputs of a second size."""


def try_calls(process: CandidateProcess, references: Sequence[Reference], seed: int, *, keeps: bool) -> list[Finding]:
    """Warnings and limits. ``keeps``: its source may keep something from one call to the next.

    Raises CandidateFailure where a model goes on with what it kept of inputs of another size, or of lower numbers.
    """
    reference = references[0]
    if reference.draws or reference.heavy:
        return []
    inputs = reference.inputs(seed)
    usual = result(reference, reference.model, inputs, seed)
    if usual is None:
        return []
    if missing := build(process, reference):
        return _told([], _with_hooks_on_parts(process, reference, inputs, seed, usual, missing))
    run = process.run(inputs, seed)
    if is_wrong(own := run.value, usual):
        return []
    unhooked = _with_hooks(process, reference, inputs, seed, usual)
    for other in references[1:2]:
        _try_two_sizes(process, reference, other, inputs, seed, usual)
    if keeps:
        _try_lower_first(process, reference, inputs, seed, usual)
    warnings, limits = _by_names(process, reference, inputs, seed, usual)
    warnings += unhooked + _left_out(process, reference, inputs, seed)
    warnings += _written_into(process, reference, inputs, seed, own)
    limits += _with_hooks_on_parts(process, reference, inputs, seed, usual, ())
    return _told(warnings, limits) + _layout(reference, inputs, seed, run.scattered)


def _told(warnings: list[str], limits: list[str]) -> list[Finding]:
    found = [Finding(check=NAME, message=text, severity=Severity.WARN) for text in warnings]
    return found + [Finding(check="limits", message=text, severity=Severity.INFO) for text in limits]


def _try_two_sizes(
    process: CandidateProcess, reference: Reference, other: Reference, inputs: list[Any], seed: int, usual: Any
) -> None:
    """One model at its own size, at another one and at its own again. It was right at both, each with a model of its own."""
    given = other.inputs(seed)
    if other.heavy or repr(reference.init_args) != repr(other.init_args) or sum(t.numel() for t in values.flatten(given)) > _MOST:
        return
    expected = result(reference, reference.model, given, seed)
    if expected is None:
        return
    try:  # built for the other size first, to know that it serves that with these parameters
        build(process, reference)
        fits = not is_wrong(process.run(given, seed).value, expected)
        build(process, reference)
        made = []
        for one in (inputs, given, inputs):
            made.append(process.run(one, seed).value)
            process.load(reference.buffers(), reference.training)  # runs may change them
    except CandidateFailure:
        return
    if fits and any(is_wrong(mine, right) for mine, right in zip(made, (usual, expected, usual), strict=True)):
        text = "Silently different where one model is called at two sizes: the second result is wrong. Keep nothing of an input's size"
        raise CandidateFailure(Status.INCORRECT, f"{text}, or look whether it is still the same.", check=NAME)


def _layout(reference: Reference, inputs: list[Any], seed: int, scattered: Sequence[int]) -> list[Finding]:
    """A warning where a result is not contiguous, and the reference's is: who calls ``view`` on it gets an error."""
    ran = (*reference.ops, *(word for word in _SPLIT if word in reference.problem.source))
    if reference.device == "cpu" and any(part in name.lower() for name in ran for part in _OF_THE_DEVICE):
        return []
    theirs = list[torch.Tensor]()
    with failures_logged("the layout of results is not looked at"), reference.buffers_restored(), reference.calling(seed):
        theirs = values.flatten(reference.model(*mapped(inputs, torch.Tensor.clone))) if scattered else []
    found = [i + 1 for i in scattered if i < len(theirs) and theirs[i].is_contiguous()]
    text = f"Result {found[0]} is not contiguous, and the reference's is: .view() of it fails, where users count on that." if found else ""
    return [Finding(check=LAYOUT, message=text, severity=Severity.WARN)] if found else []


def _with_hooks(process: CandidateProcess, reference: Reference, inputs: list[Any], seed: int, usual: Any) -> list[str]:
    """Hooks that a user registers on the model itself change its inputs and its result, as they do with the reference."""
    with hooked(reference.model):
        expected = result(reference, reference.model, inputs, seed)
    if not differs(expected, usual):
        return []
    try:
        process.load(reference.buffers(), reference.training)
        value = process.run(inputs, seed, hooked=True).value
    except CandidateFailure:  # whoever calls it would see that
        return []
    none, after, before = (not is_wrong(*pair) for pair in ((value, usual), (value, negated(usual)), (negated(value), expected)))
    if is_wrong(value, expected) and (none or after or before):  # anything else comes of other inputs, and not of hooks
        which = "pre-hooks" if after else "hooks" if before else "hooks and pre-hooks"
        return [f"Forward {which} of the model do not act, as they do with the reference: leave nn.Module's own __call__ in its place."]
    return []


def _with_hooks_on_parts(
    process: CandidateProcess, reference: Reference, inputs: list[Any], seed: int, usual: Any, missing: Sequence[str]
) -> list[str]:
    """Hooks on parts of the model whose parameters the candidate has under the same names: they change the reference's result."""
    own = {name: [f"{name}.{n}" for n in (*dict(part.named_parameters(recurse=False)), *dict(part.named_buffers(recurse=False)))]
           for name, part in reference.model.named_modules() if name}  # fmt: skip
    parts = tuple(name for name, state in own.items() if state and not set(state) & set(missing))
    with parts_hooked(reference.model, parts):
        expected = result(reference, reference.model, inputs, seed) if parts else None
    if not differs(expected, usual):
        return []
    build(process, reference)
    try:
        value = process.run(inputs, seed, hooked_parts=parts).value
    except CandidateFailure:
        return []
    shown = ", ".join(parts[:4]) + (", ..." if len(parts) > 4 else "")
    text = f"Hooks on its parts ({shown}) do not act as with the reference: kernels take their parameters, and nobody calls them."
    return [text] if is_wrong(value, expected) else []


def _try_lower_first(process: CandidateProcess, reference: Reference, inputs: list[Any], seed: int, usual: Any) -> None:
    """A new model gets inputs first whose whole numbers are the lowest that the problem draws, and whose others are a thousandth: what it
    keeps of them, a longest length or a largest number, does not serve the next ones."""
    lowest = at_bounds(inputs, reference.inputs(seed + 1), LOWEST, seed) or inputs
    first = variant(lowest, "tiny", seed) or lowest
    if first is inputs:
        return
    build(process, reference)
    try:
        process.run(first, seed)
        process.load(reference.buffers(), reference.training)
        value = process.run(inputs, seed).value
    except CandidateFailure:
        return
    if is_wrong(value, usual):
        text = "Silently different where the first call of a model has lower numbers than the next one: something is kept of them."
        raise CandidateFailure(Status.INCORRECT, text, check=NAME)


def _names(function: Any, given: int) -> list[inspect.Parameter]:
    """Parameters for the arguments that are given; none where they have no names."""
    try:
        found = list(inspect.signature(function).parameters.values())[:given]
    except (TypeError, ValueError):
        return []
    return found if len(found) == given and all(p.kind is p.POSITIONAL_OR_KEYWORD for p in found) else []


def _by_names(
    process: CandidateProcess, reference: Reference, inputs: list[Any], seed: int, usual: Any
) -> tuple[list[str], list[str]]:
    names = [p.name for p in _names(reference.model.forward, len(inputs))]
    if len(names) < 2:  # nothing could be in another's place
        return [], []
    build(process, reference)
    try:
        value = process.run(inputs, seed, by_name=tuple(names)).value
    except CandidateFailure:
        return [], [f"It takes no arguments by the reference's names ({', '.join(names[:6])})."]
    text = f"With arguments by their names ({', '.join(names[:6])}) the result is another one: they stand in another order."
    return [text] if is_wrong(value, usual) else [], []


def _left_out(process: CandidateProcess, reference: Reference, inputs: list[Any], seed: int) -> list[str]:
    """Arguments that the problem gives, though they have defaults."""
    parameters = _names(reference.model.forward, len(inputs))
    for count in range(len(parameters) - 1, 0, -1):
        if parameters[count].default is inspect.Parameter.empty:
            break
        expected = result(reference, reference.model, inputs[:count], seed)
        if expected is None:
            continue
        build(process, reference)
        try:
            value = process.run(inputs[:count], seed).value
        except CandidateFailure:
            continue
        if is_wrong(value, expected):
            return [f"Without the argument {parameters[count].name} the result is wrong: its default is another one than the reference's."]
    return []


def _written_into(process: CandidateProcess, reference: Reference, inputs: list[Any], seed: int, own: Any) -> list[str]:
    """A result may be written into by those who get it. That the next call gives something else shows memory that a model keeps."""
    if not _gives_new_results(reference, inputs, seed):
        return []
    build(process, reference)
    try:
        process.run(inputs, seed, hold=True)  # in memory of its own: a result may be a view of the inputs, as the reference's
        value = process.run(inputs, seed, spoiled=True).value
    except CandidateFailure:
        return []
    text = "A result that is written into changes those of later calls: the model keeps it. Return a new tensor from each call."
    return [text] if is_wrong(value, own) else []


def _gives_new_results(reference: Reference, inputs: list[Any], seed: int) -> bool:
    """Whether the reference's results stay what they are where those of the call before were written into."""
    if reference.buffers():
        return False  # a call may change them
    with failures_logged("results are not written into"), failures_logged("no second model is built", ProblemError):
        model, found = reference.built(reference.seed), list[Any]()
        with reference.calling(seed):
            for _ in range(2):
                given = mapped(inputs, torch.Tensor.clone)
                made = model(*given)
                found.append(mapped(made, torch.Tensor.clone))
                values.corrupt(values.flatten(made))
        return not is_wrong(found[1], found[0])
    return False
