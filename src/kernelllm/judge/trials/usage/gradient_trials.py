"""Tries other uses of gradients where they are judged: gradients of a part, none, of several calls at a time."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from kernelllm.core.types import Status
from kernelllm.judge.gradient_outputs import (
    ADDED,
    ALONE,
    EXPANDED,
    GRADIENT,
    IN_TURN,
    INPUTS_CHANGE,
    NOT_FINITE,
    OUTPUT,
    OUTPUTS_CHANGE,
    PARAMETERS_CHANGE,
    SCALES,
    SECOND,
    TWICE,
)
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.trials.comparison.same_computation import finite
from kernelllm.judge.trials.first_runs import build
from kernelllm.judge.trials.inputs.memory_layouts import layout_warnings
from kernelllm.judge.trials.inputs.shape_trials import deeper
from kernelllm.judge.trials.reference_runs.failed_runs import failures_logged
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.judge.trials.reference_runs.reference_results import is_wrong
from kernelllm.judge.trials.usage.usage_trials import NAME, UsageFindings, expect_same, restore
from kernelllm.problems import nested
from kernelllm.problems.nested import mapped

_CHANGES = {INPUTS_CHANGE: "an input changes", PARAMETERS_CHANGE: "a parameter changes", OUTPUTS_CHANGE: "an output changes"}
_FEW = 4
"""Rows that are halved."""
_RANGE = 1e38
"""What types hold in which a scaled number is rounded as it was."""
_MOST = 3
"""Tensors that have their gradients asked for each by itself."""


def try_gradients(process: CandidateProcess, reference: Reference, seed: int) -> UsageFindings:
    """Raises CandidateFailure where the candidate is silently different."""
    uses, inputs = UsageFindings(), reference.inputs(seed)
    missing = build(process, reference)
    state = {name: tensor for name, tensor in reference.state().items() if name not in missing}
    process.load(state, reference.training)
    whole = process.run(inputs, seed).value
    _try_frozen(uses, process, reference, state, inputs, seed, whole)
    if reference.draws:
        return uses
    restore(process, reference, state)
    _try_in_turn(uses, process, reference, state, seed)
    restore(process, reference, state)
    _try_losses(process, reference, state, inputs, seed)
    _try_more_dimensions(uses, process, reference, state, inputs, seed)
    _try_twice(uses, process, reference, state, inputs, seed, whole)
    restore(process, reference, state)
    uses.warnings += layout_warnings(process, inputs, seed, whole, partial(restore, process, reference, state), " or a gradient")
    _try_second(uses, process, reference, inputs, seed)
    restore(process, reference, state)
    _try_expanded(uses, process, reference, inputs, seed)
    _try_not_finite(uses, process, reference, inputs, seed)
    for number, output in enumerate(outputs := list(nested.tensors(whole[OUTPUT]))[:_MOST]):
        if len(outputs) > 1 and output.is_floating_point():
            restore(process, reference, state)
            _try_alone(uses, process, reference, inputs, seed, number)
    for order, what in _CHANGES.items():
        restore(process, reference, state)
        _try_changed(uses, process, reference, inputs, seed, whole, order, what)
    with reference.forward_alone():
        build(process, reference)
        _try_disabled(uses, process, inputs, seed, whole)
    return uses


def _try_disabled(uses: UsageFindings, process: CandidateProcess, inputs: list[Any], seed: int, whole: Any) -> None:
    """Below ``torch.no_grad()``, as a trained model is called."""
    what = "where gradients are disabled"

    def run() -> Any:
        try:
            return process.run(inputs, seed).value
        except CandidateFailure as failure:
            uses.warnings += [] if failure.refused else [f"It fails {what}: {failure.message.partition(chr(10))[0][:160]}"]
            raise

    expect_same(uses, what, whole[OUTPUT], run)


def _try_frozen(
    uses: UsageFindings, process: CandidateProcess, reference: Reference, state: Mapping[str, torch.Tensor], inputs: list[Any], seed: int,
    whole: Any,
) -> None:  # fmt: skip
    """Gradients of a part of inputs and parameters, as where weights are frozen. Raises CandidateFailure where they are others than with
    the rest."""
    names = [key.removeprefix(GRADIENT) for key, value in whole.items() if key.startswith(GRADIENT) and value is not None]
    weights = [name for name in names if name in dict(reference.model.named_parameters())]
    parts = [weights, [name for name in names if name not in weights]]
    for part in parts if all(parts) else [[name] for name in names[:_MOST] if len(names) > 1]:
        frozen = tuple(name for name in names if name not in part)
        what = f"where no gradient of {', '.join(frozen[:4])}{', ...' if len(frozen) > 4 else ''} is asked for"
        try:
            made = process.run(inputs, seed, frozen=frozen).value
        except CandidateFailure as failure:
            uses.warnings.append(f"It fails {what}: {failure.message.partition(chr(10))[0][:160]}")
            restore(process, reference, state)
            continue
        bad = [name for name in part if made[GRADIENT + name] is None or is_wrong(made[GRADIENT + name], whole[GRADIENT + name])]
        if bad and not reference.draws:
            text = f"The gradient of {bad[0]} is wrong {what}: look at ctx.needs_input_grad."
            raise CandidateFailure(Status.INCORRECT, text, check=NAME)


def _try_in_turn(
    uses: UsageFindings, process: CandidateProcess, reference: Reference, state: Mapping[str, torch.Tensor], seed: int
) -> None:
    """Two forwards, then their backwards: what the second forward keeps must not be what the first one's backward reads."""
    first, second = reference.inputs(seed), reference.inputs(seed + 1)
    for given, of in ((second, ""), (_of_half_the_rows(second), " on fewer rows")):
        both = [_of_reference(reference, inputs, seed) for inputs in (first, given)] if given else [None]
        if None in both or is_wrong(_of_reference(reference, [*first, *given], seed, IN_TURN), both):
            return
        own = []
        try:
            for inputs in (first, given):
                own.append(process.run(inputs, seed).value)
                restore(process, reference, state)
        except CandidateFailure:  # the candidate does not serve so few rows
            restore(process, reference, state)
            return
        what = f"where a second forward{of} comes between a forward and its backward"
        expect_same(uses, what, own, partial(_run, process, [*first, *given], seed, IN_TURN))
        restore(process, reference, state)


def _run(process: CandidateProcess, inputs: list[Any], seed: int, order: str) -> Any:
    return process.run(inputs, seed, backward=order).value


def _of_half_the_rows(inputs: list[Any]) -> list[Any]:
    """The inputs with half of the first one's first dimension, in all that have as many; none where there is no such."""
    rows = inputs[0].shape[0] if inputs and isinstance(inputs[0], torch.Tensor) and inputs[0].dim() > 1 else 0
    if rows < _FEW:
        return []
    cut: list[Any] = mapped(inputs, lambda tensor: tensor[: rows // 2].clone() if tensor.dim() and len(tensor) == rows else tensor)
    return cut


def _try_losses(process: CandidateProcess, reference: Reference, state: Mapping[str, torch.Tensor], inputs: list[Any], seed: int) -> None:
    """Gradients that are added to those that are there, and of a loss that is scaled. Raises CandidateFailure where they are wrong."""
    told = {ADDED: "where gradients are added to those that are there (backward())"}
    if all(torch.finfo(t.dtype).max > _RANGE for t in nested.tensors([inputs, *state.values()]) if t.is_floating_point()):
        told |= {order: f"where the loss is {scale:g} times as large" for order, scale in SCALES.items()}
    for order, what in told.items():
        expected = _of_reference(reference, inputs, seed, order)
        if expected is None or not finite(expected):
            continue
        try:
            made = process.run(inputs, seed, backward=order).value
        except CandidateFailure:  # whoever trains it would see that
            made = expected
        restore(process, reference, state)
        if any(_lost(mine, theirs) for mine, theirs in zip(_gradients(made), _gradients(expected), strict=True)):
            raise CandidateFailure(Status.INCORRECT, f"Gradients are wrong {what}, and nothing is said.", check=NAME)


def _try_more_dimensions(
    uses: UsageFindings, process: CandidateProcess, reference: Reference, state: Mapping[str, torch.Tensor], inputs: list[Any], seed: int
) -> None:
    """Tell where gradients are others than the reference's for inputs with one more dimension in front."""
    for given in deeper(inputs, reference.inputs(seed + 1)):
        expected = _of_reference(reference, given, seed)
        if expected is None or not finite(expected):
            continue
        try:
            made = process.run(given, seed).value
        except CandidateFailure:
            made = expected
        restore(process, reference, state)
        right = not is_wrong(made[OUTPUT], expected[OUTPUT])
        if right and any(_lost(mine, theirs) for mine, theirs in zip(_gradients(made), _gradients(expected), strict=True)):
            text = "Its gradients are other ones than the reference's, without an error, for inputs with one more dimension in front."
            uses.ignored.append(f"{text} Its results are right.")
        return


def _try_twice(
    uses: UsageFindings, process: CandidateProcess, reference: Reference, state: Mapping[str, torch.Tensor], inputs: list[Any], seed: int,
    whole: Any,
) -> None:  # fmt: skip
    """Tell where a second backward on the same graph gives other gradients than the first."""
    if _of_reference(reference, inputs, seed, TWICE) is None:
        return
    what = "in a second backward on the same graph (retain_graph=True)"
    try:
        made = process.run(inputs, seed, backward=TWICE).value
    except CandidateFailure as failure:
        uses.note(failure, what)
        restore(process, reference, state)
        return
    if is_wrong(made, whole):
        uses.warnings.append(f"Gradients are other ones {what}: the backward overwrites what it needs, and nothing is said.")


def _try_second(uses: UsageFindings, process: CandidateProcess, reference: Reference, inputs: list[Any], seed: int) -> None:
    """Tell where gradients of gradients are others than the reference's, without a word."""
    expected = _of_reference(reference, inputs, seed, SECOND)
    if expected is None or not finite(expected):
        return
    try:
        made = process.run(inputs, seed, backward=SECOND).value
    except CandidateFailure:  # as nothing that a kernel stores has a gradient of its own
        return
    if is_wrong(_gradients(made), _gradients(expected)):
        text = "Gradients of gradients (create_graph=True) are silently wrong: torch follows a part of the backward alone."
        uses.warnings.append(f"{text} Mark it as torch.autograd.function.once_differentiable.")


def _try_expanded(uses: UsageFindings, process: CandidateProcess, reference: Reference, inputs: list[Any], seed: int) -> None:
    """Tell where gradients are wrong of a loss that is a sum, whose incoming gradients are one number in memory."""
    expected = _of_reference(reference, inputs, seed, EXPANDED)
    if expected is None or not finite(expected):
        return
    try:
        wrong = is_wrong(_gradients(process.run(inputs, seed, backward=EXPANDED).value), _gradients(expected))
    except CandidateFailure as failure:
        wrong = not failure.refused
    if wrong:
        text = "Gradients are wrong where the loss is a sum or a mean of the output: what comes in then is one number in memory (expand)."
        uses.warnings.append(f"{text} Call .contiguous() on it, or follow its strides.")


def _try_not_finite(uses: UsageFindings, process: CandidateProcess, reference: Reference, inputs: list[Any], seed: int) -> None:
    """Tell where NaN and infinities that come in get lost: a scaler of losses takes the step then."""
    expected = _of_reference(reference, inputs, seed, NOT_FINITE)
    if expected is None or (reference.device == "cpu" and reference.heavy):
        return
    try:
        made = process.run(inputs, seed, backward=NOT_FINITE).value
    except CandidateFailure:  # whoever trains it would see that
        return
    pairs = [(name, made.get(name), theirs) for name, theirs in expected.items() if name != OUTPUT and isinstance(theirs, torch.Tensor)]
    same = [(name, mine, theirs) for name, mine, theirs in pairs if isinstance(mine, torch.Tensor) and mine.shape == theirs.shape]
    lost = next((name for name, mine, theirs in same if bool((nested.finite(mine) & ~nested.finite(theirs)).any())), "")
    if lost:
        text = f"NaN or infinities among the gradients that come in get lost in the {lost}, and the reference keeps them"
        uses.warnings.append(f"{text}: a scaler of losses would not see that a step overflows.")


def _try_alone(
    uses: UsageFindings, process: CandidateProcess, reference: Reference, inputs: list[Any], seed: int, number: int
) -> None:
    """A loss of one of several outputs. Raises CandidateFailure where its gradients are wrong."""
    expected = _of_reference(reference, inputs, seed, f"{ALONE}{number}")
    if expected is None:
        return
    what = f"where a loss is made of output {number + 1} alone"
    try:
        made = process.run(inputs, seed, backward=f"{ALONE}{number}").value
    except CandidateFailure as failure:
        uses.warnings.append(f"It fails {what}: {failure.message.partition(chr(10))[0][:160]}")
        return
    if any(_lost(mine, theirs) for mine, theirs in zip(_gradients(made), _gradients(expected), strict=True)):
        raise CandidateFailure(Status.INCORRECT, f"Gradients are wrong {what}, and nothing is said.", check=NAME)


def _lost(mine: Any, theirs: Any) -> bool:
    """Whether a gradient is another one. None is as good as zeros."""
    if mine is None or theirs is None:
        return any(one is not None and bool(one.any()) for one in (mine, theirs))
    return is_wrong(mine, theirs)


def _try_changed(
    uses: UsageFindings, process: CandidateProcess, reference: Reference, inputs: list[Any], seed: int, whole: Any, order: str, what: str
) -> None:
    """Tell where something changes in place between forward and backward, and gradients are others without a word."""
    saved = {name: tensor.clone() for name, tensor in reference.state().items()}
    try:
        theirs = _of_reference(reference, inputs, seed, order)
    finally:
        reference.load(saved)
    expected = whole if theirs is None else theirs
    try:
        made = process.run(inputs, seed, backward=order).value
    except CandidateFailure:  # as autograd itself does
        return
    if all(is_wrong(_gradients(made), _gradients(right)) for right in (expected, whole)):
        says = "autograd refuses that for what it saved" if theirs is None else "the reference's are not"
        uses.warnings.append(f"Gradients are silently other ones where {what} in place before the backward; {says}: use save_for_backward.")


def _gradients(value: Any) -> list[Any]:
    return [part for key, part in value.items() if key != OUTPUT]


def _of_reference(reference: Reference, inputs: list[Any], seed: int, order: str = "") -> Any:
    """What it gives with that order of forwards and backwards, None where that fails."""
    with failures_logged("an order of backwards is not tried"), reference.buffers_restored(), reference.calling(seed):
        called = reference.called(reference.model)
        called.order = order
        return called(*mapped(inputs, torch.Tensor.clone))
    return None
