"""Tries other uses of a candidate: the other mode, other constructor and keyword arguments, inputs that are not contiguous.

A clear refusal is fine, and is told as a limit; another result without a word is not.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from kernelllm.core.types import Finding, Severity, Status
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.transport import values
from kernelllm.judge.trials.comparison.same_computation import finite, same_structure
from kernelllm.judge.trials.first_runs import build
from kernelllm.judge.trials.inputs.input_distribution import NAN, can_run_on_nan, handles_nan
from kernelllm.judge.trials.inputs.memory_layouts import layout_warnings
from kernelllm.judge.trials.inputs.optional_arguments import alternative_values, none_defaults, tensors_like
from kernelllm.judge.trials.reference_runs.device_asserts import no_device_assert
from kernelllm.judge.trials.reference_runs.failed_runs import failures_logged
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.judge.trials.reference_runs.reference_results import differs, is_wrong, result
from kernelllm.judge.trials.schedule import INIT_SEED
from kernelllm.judge.trials.usage.context_trials import try_contexts
from kernelllm.judge.trials.usage.half_difference import half_precision_difference
from kernelllm.judge.trials.usage.type_trials import try_types
from kernelllm.problems.inputs import variant
from kernelllm.problems.nested import mapped
from kernelllm.problems.seeds import own_generators, random_state

NAME = "silently_different"
_SMALL = 100_000
"""Parameters of a model that takes no long time."""
_LEFT = 6
"""Times what one command may take that a worker must have left for other layouts, where a run is heavy."""
_Run = Callable[[], Any]


@dataclass
class UsageFindings:
    """What was found. ``limits``: what the candidate refuses, and how; ``ignored``: what it takes no notice of."""

    limits: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)

    def note(self, failure: CandidateFailure, what: str) -> None:
        """A refusal is a limit; any other failure says nothing of this use."""
        if failure.refused:
            said = failure.message.partition("\n")[0].removeprefix("The candidate raised ")
            self.limits.append(f"{what} ({said[:160]})")

    def findings(self) -> list[Finding]:
        """Warnings, and the limits as information."""
        found = [Finding(check=NAME, message=text, severity=Severity.WARN) for text in self.warnings]
        told = [*(["It refuses, with an error of its own: " + "; ".join(self.limits)] if self.limits else []), *self.ignored]
        return found + [Finding(check="limits", message=text, severity=Severity.INFO) for text in told]


def try_usages(
    process: CandidateProcess, reference: Reference, seed: int, *, own_state: bool, dtypes: Sequence[str] = (),
    often: int = 0, source: str = "",
) -> UsageFindings:  # fmt: skip
    """Raises CandidateFailure where the candidate is silently different. ``own_state``: it lacks names of the reference's state.

    ``dtypes``: those that it says it serves; ``often``: it seems to count its calls, and so many are made; ``source``: its own.
    """
    uses = UsageFindings()
    inputs = reference.inputs(seed)
    usual = result(reference, reference.model, inputs, seed)
    if usual is None:
        return uses
    missing = build(process, reference)
    state = {name: tensor for name, tensor in reference.state().items() if name not in missing}
    own = process.run(inputs, seed).value
    process.load(state, reference.training)
    comparable = not is_wrong(own, usual)  # where eager's own rounding excuses a difference, only the candidate's results can be compared
    for what, expected, run in _uses_of_the_model(process, reference, inputs, seed, usual) if comparable else ():
        expect_same(uses, what, expected, run)
        restore(process, reference, state)  # a run in training mode updates buffers
    for name in none_defaults(reference.model.forward, len(inputs)) if comparable else ():
        _try_optional(uses, process, reference, inputs, seed, name, (usual, own))
        restore(process, reference, state)
    for what, expected, run in () if own_state or not comparable else _other_constructions(process, reference, inputs, seed, usual):
        expect_same(uses, what, expected, run)
    if reference.draws:  # elsewhere torch itself may draw others, though the seed is the same
        return uses
    build(process, reference)
    _try_random_mode(uses, process, reference, inputs, seed, own)
    restore(process, reference, state)
    _try_autocast(uses, process, reference, inputs, seed, usual)
    restore(process, reference, state)
    expect_same(uses, "with gradients enabled", own, lambda: process.run(inputs, seed, grad=True).value)
    with _other_mode(reference.model):
        other = result(reference, reference.model, inputs, seed)  # None where it draws random numbers there, as dropout does
    same = other is not None and not differs(other, usual)
    uses.limits += try_contexts(process, reference, seed, other_mode=same, often=often)
    restore(process, reference, state)
    if not reference.heavy or process.left > _LEFT * process.seconds:
        uses.warnings += layout_warnings(process, inputs, seed, own, partial(restore, process, reference, state))
    for dtype in dtypes:
        _try_dtype(uses, process, reference, state, inputs, seed, dtype)
    if not dtypes:
        warnings, limits = try_types(process, reference, state, inputs, seed, usual, source)
        uses.warnings, uses.ignored = uses.warnings + warnings, uses.ignored + limits
    _try_nan(uses, process, reference, inputs, seed)
    return uses


def restore(process: CandidateProcess, reference: Reference, state: Mapping[str, torch.Tensor], dtype: str = "") -> None:
    """The candidate as it was built, whatever a use made of it or of its worker."""
    if process.lost:
        build(process, reference)
    process.load(state, reference.training, dtype=dtype)


def expect_same(uses: UsageFindings, what: str, expected: Any, run: _Run) -> None:
    """Raises CandidateFailure where a run gives something else than is expected; what fails otherwise is noted."""
    try:
        value = run()
    except CandidateFailure as failure:
        uses.note(failure, what)
        return
    if is_wrong(value, expected):
        text = f"Silently different {what}: the result is wrong, and nothing is said. Follow it, or raise an error."
        raise CandidateFailure(Status.INCORRECT, text, check=NAME)


def _try_random_mode(uses: UsageFindings, process: CandidateProcess, reference: Reference, inputs: list[Any], seed: int, own: Any) -> None:
    """Tell where the reference draws random numbers in the other mode, as dropout does in training, and the candidate's result stays."""
    drawn = False
    with failures_logged("no run in the other mode"), reference.buffers_restored(), reference.calling(seed), _other_mode(reference.model):
        before = random_state(reference.device)
        reference.model(*mapped(inputs, torch.Tensor.clone))
        drawn = random_state(reference.device) != before
    if not drawn:
        return
    mode = "eval" if reference.training else "training"
    try:
        process.load({}, not reference.training)
        same = not is_wrong(process.run(inputs, seed).value, own)
    except CandidateFailure as failure:
        uses.note(failure, f"in {mode} mode")
        return
    if same:
        uses.warnings.append(f"In {mode} mode the reference draws random numbers; the result stays as it was, and nothing is said.")


def _try_autocast(uses: UsageFindings, process: CandidateProcess, reference: Reference, inputs: list[Any], seed: int, usual: Any) -> None:
    """Where results have another type below ``torch.autocast``, the candidate's should, or it should refuse."""
    with torch.autocast(torch.device(reference.device).type, torch.bfloat16):
        expected = result(reference, reference.model, inputs, seed) if not reference.heavy else None
    if expected is None or _dtypes(expected) == _dtypes(usual):
        return
    try:
        value = process.run(inputs, seed, autocast=True).value
    except CandidateFailure as failure:
        uses.note(failure, "below torch.autocast")
    else:
        if _dtypes(value) == _dtypes(usual):
            uses.ignored.append("Below torch.autocast its results keep their type; the reference's do not.")  # as most kernels' do


def _try_nan(uses: UsageFindings, process: CandidateProcess, reference: Reference, inputs: list[Any], seed: int) -> None:
    """Tell where NaN in the inputs does not reach the output as it does with the reference."""
    given = variant(inputs, NAN, seed) if not reference.heavy and can_run_on_nan(reference) else None
    if given is None or handles_nan(reference):
        return
    with failures_logged("NaN is not tried"):
        theirs = result(reference, reference.model, given, seed, any_numbers=True)
        if theirs is None:
            return
        try:
            mine = process.run(given, seed, undefined=()).value
        except CandidateFailure as failure:
            uses.warnings += ["It does not end where an input holds NaN."] if failure.status is Status.TIMEOUT else []
            return
        pairs = zip(values.flatten(mine), values.flatten(theirs), strict=True)
        if any(bool((t.isnan() & ~m.isnan()).any()) for m, t in pairs if m.is_floating_point() and m.shape == t.shape):
            uses.ignored.append("NaN in an input is lost, where the reference's result is NaN.")


def _dtypes(value: Any) -> list[torch.dtype]:
    return [tensor.dtype for tensor in values.flatten(value)]


def _try_dtype(
    uses: UsageFindings, process: CandidateProcess, reference: Reference, state: Mapping[str, torch.Tensor], inputs: list[Any], seed: int,
    name: str,
) -> None:  # fmt: skip
    """Parameters and inputs in another type, held against the reference in float64 on the same numbers."""
    own = {t.dtype for t in (*values.flatten(inputs), *reference.state().values()) if t.is_floating_point()}
    dtype = values.dtype(name)
    if len(own) != 1 or dtype in own or not dtype.is_floating_point:
        return
    model, given = copy.deepcopy(reference.model).to(dtype), mapped(inputs, partial(_converted, dtype=dtype))
    expected = result(reference, model, given, seed)
    exact = result(reference, model.double(), mapped(given, partial(_converted, dtype=torch.float64)), seed)
    if expected is None or exact is None or not (finite(expected) and finite(exact)):
        return
    try:
        process.load(state, reference.training, dtype=name)
        value = process.run(given, seed).value
    except CandidateFailure as failure:
        uses.note(failure, f"in {name}")
        said = failure.message.partition("\n")[0].removeprefix("The candidate raised ")[:160]
        uses.warnings += [] if failure.refused else [f"It says that it serves {name}, and fails there: {said}"]
    else:
        if why := half_precision_difference(value, expected, exact):
            text = f"Silently different in {name}, which it says that it serves: {why}."
            raise CandidateFailure(Status.INCORRECT, text, check=NAME)
    restore(process, reference, state, values.dtype_name(own.pop()))


def _converted(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _uses_of_the_model(
    process: CandidateProcess, reference: Reference, inputs: list[Any], seed: int, usual: Any
) -> Iterator[tuple[str, Any, _Run]]:
    """What is tried, the right output and the candidate's run, where the reference reacts."""
    with _other_mode(reference.model):
        expected = result(reference, reference.model, inputs, seed)
    if differs(expected, usual):

        def in_other_mode() -> Any:
            process.load({}, not reference.training)
            try:
                return process.run(inputs, seed).value
            finally:
                process.load({}, reference.training)

        yield f"in {'eval' if reference.training else 'training'} mode", expected, in_other_mode
    known: set[str] = set()
    for name, other in alternative_values(reference.model.forward, len(inputs), {}, reference.problem.source):
        expected = result(reference, reference.model, inputs, seed, {name: other}) if name not in known else None
        if differs(expected, usual):
            known |= set() if isinstance(other, str) else {name}  # each text may mean something else
            yield f"with {name}={other!r}", expected, partial(_run_with, process, inputs, seed, {name: other})


def _try_optional(
    uses: UsageFindings, process: CandidateProcess, reference: Reference, inputs: list[Any], seed: int, name: str, without: tuple[Any, Any]
) -> None:
    """A tensor for an argument that is None: the first one that the reference takes and reacts to. ``without``: its result, and the
    candidate's. Raises CandidateFailure where that takes no notice; another result than the reference's may come of a shape that a
    problem would not give."""
    for tensor in tensors_like(inputs, seed):
        expected = result(reference, reference.model, inputs, seed, {name: tensor})
        if not differs(expected, without[0]) or not same_structure(expected, without[0]):
            continue
        what = f"with {name}={values.describe(tensor)[0]}"
        try:
            value = process.run([*inputs, tensor], seed, by_name=(name,)).value
        except CandidateFailure as failure:
            uses.note(failure, what)
            return
        if is_wrong(value, expected) and not is_wrong(value, without[1]):
            text = f"Silently different {what}: the argument is ignored, and nothing is said. Follow it, or raise an error."
            raise CandidateFailure(Status.INCORRECT, text, check=NAME)
        uses.warnings += [f"The result is another one than the reference's {what}."] if is_wrong(value, expected) else []
        return


def _parameters(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _run_with(process: CandidateProcess, inputs: list[Any], seed: int, named: dict[str, Any]) -> Any:
    return process.run(inputs, seed, named=named).value


def _other_constructions(
    process: CandidateProcess, reference: Reference, inputs: list[Any], seed: int, usual: Any
) -> Iterator[tuple[str, Any, _Run]]:
    args, kwargs = reference.init_args
    known: set[str] = set()
    for name, other in alternative_values(type(reference.model).__init__, len(args) + 1, kwargs, reference.problem.source):
        model = None
        if name in known:
            continue
        with failures_logged(f"{name}={other!r} is no argument to try"), own_generators():
            model = reference.instance.model(INIT_SEED, reference.device, more={name: other})
        if model is None or _parameters(model) > 2 * _parameters(reference.model) + _SMALL:
            continue
        may = no_device_assert(reference, inputs, whole_numbers=True, model=model)  # a smaller table, say
        expected = result(reference, model, inputs, seed) if may else None
        if differs(expected, usual):
            known |= set() if isinstance(other, str) else {name}
            state = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers(remove_duplicate=False))}

            def constructed(more: Mapping[str, Any], state: Mapping[str, torch.Tensor]) -> Any:
                built = process.construct((args, {**kwargs, **more}), INIT_SEED)
                mine = {e.name: tuple(e.shape) for e in built.state}
                process.load({k: t.detach() for k, t in state.items() if mine.get(k) == tuple(t.shape)}, reference.training)
                return process.run(inputs, seed).value

            yield f"when built with {name}={other!r}", expected, partial(constructed, {name: other}, state)


@contextlib.contextmanager
def _other_mode(model: torch.nn.Module) -> Iterator[None]:
    before = {module: module.training for module in model.modules()}
    model.train(not model.training)
    try:
        yield
    finally:
        for module, training in before.items():
            module.training = training
