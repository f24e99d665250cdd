"""Makes one trial: the candidate runs, then the reference, then both outputs are compared and kept as evidence."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import torch

from kernelllm.core.errors import ProblemError
from kernelllm.core.types import Finding, Severity, Status, Trial
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess, CandidateRun
from kernelllm.judge.kept_outputs import KEEPS, KEEPS_INPUTS, keeps_all, keeps_inputs
from kernelllm.judge.observation import OutputStats, TrialRun
from kernelllm.judge.transport import values
from kernelllm.judge.trials.comparison.compare import Comparison
from kernelllm.judge.trials.comparison.low_precision_results import report_low_precision
from kernelllm.judge.trials.evidence import TrialEvidence
from kernelllm.judge.trials.inputs import input_distribution
from kernelllm.judge.trials.inputs.input_distribution import CONSTANTS, EQUAL, EXPLANATIONS, INFINITE, NAMES, NAN, OWN_VALUES, TOUCHED
from kernelllm.judge.trials.output_comparison import OutputComparison
from kernelllm.judge.trials.output_structure import refuse_empty, report_names, report_nan
from kernelllm.judge.trials.reference_runs.operators_by_pass import operators_by_pass
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.judge.trials.reference_runs.reference_run import ReferenceRun
from kernelllm.judge.trials.schedule import PlannedTrial, TrialSeeds
from kernelllm.judge.trials.state.parameter_states import OWN, REFERENCE, STATES

_DIGEST_LIMIT = 2**26
_SAMPLE = 2**24
"""Figures of larger outputs come from a sample of about this many elements."""
_MOST = 8
"""Loads that are looked at one by one."""
_FILLS = (0.0, -inf, inf)
_ONLY_FIRST = (
    "Wrong in the first call, right when it was made again. Before a GPU runs an autotuned kernel for the first time, it launches all its "
    "configurations to measure them: name what the kernel adds to or changes in place in reset_to_zero= or restore_value=."
)


class HeldOutput:
    """What the candidate returned in one trial, which its worker holds since, and what the reference returned."""

    def __init__(self) -> None:
        self._mine: list[torch.Tensor] = []
        self._theirs: list[torch.Tensor] = []
        self._theirs_before: list[torch.Tensor] = []

    def keep(self, mine: Any, theirs: Any) -> None:
        """The candidate's output, as copied right after the run, and the reference's."""
        self._mine, self._theirs = values.flatten(mine), values.flatten(theirs)
        self._theirs_before = [t.clone() for t in self._theirs]

    def check(self, process: CandidateProcess) -> None:
        """Read it again. Raises CandidateFailure where it has changed."""
        if not self._mine:
            return
        now = values.flatten(process.held_output())
        stay = [same(before, t) for before, t in zip(self._theirs_before, self._theirs, strict=True)]
        for number, (before, after, stays) in enumerate(zip(self._mine, now, stay, strict=False)):
            if stays and not same(before, after):
                text = f"Output {number + 1} of an earlier call changed when ModelNew ran again: a later call writes into its memory."
                raise CandidateFailure(Status.INCORRECT, f"{text} Return a new tensor from each call.")


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors hold the same values, NaN included."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    return torch.equal(left, right) or bool(((left == right) | ((left != left) & (right != right))).all())


@dataclass(frozen=True)
class SizeUnderTest:
    """What all trials of one candidate at one size share."""

    position: int
    """Position of the size; 0 is the first and smallest."""
    reference: Reference
    process: CandidateProcess
    seeds: TrialSeeds
    comparison: OutputComparison
    evidence: TrialEvidence
    held: HeldOutput = field(default_factory=HeldOutput)

    @property
    def label(self) -> str:
        return self.reference.sizes.label


@dataclass(frozen=True)
class CandidateCall:
    """The candidate's part of a trial: a run, or the failure that came instead."""

    seed: int
    """The seed that the inputs were drawn with."""
    run_seed: int
    """The seed that candidate and reference run with. It tells nothing of the inputs."""
    inputs: list[Any]
    run: CandidateRun | None = None
    failure: CandidateFailure | None = None


def call_candidate(
    process: CandidateProcess, position: int, inputs: list[Any], seed: int, seeds: TrialSeeds, *, hold: bool = False,
    again: bool = False, undefined: tuple[str, ...] | None = None,
) -> CandidateCall:
    """Run the candidate. Operators are watched in every run: a candidate may behave in its first call alone."""
    run_seed = seeds.derive("run", seed)
    try:
        run = process.run(inputs, run_seed, observe=position == 0, apart=position > 0, hold=hold, again=again, undefined=undefined)
    except CandidateFailure as failure:
        return CandidateCall(seed, run_seed, inputs, failure=failure.kept())
    return CandidateCall(seed, run_seed, inputs, run)


def run_trial(size: SizeUnderTest, planned: PlannedTrial) -> None:
    """The whole trial, where inputs of that distribution can be made. Raises CandidateFailure, ProblemError."""
    while not _tried(size, planned) and input_distribution.next_form(size.reference, planned.distribution):
        pass


def _tried(size: SizeUnderTest, planned: PlannedTrial) -> bool:
    """Makes the trial. False where the reference gave hardly a finite number."""
    seed = size.seeds.derive(size.position, planned.distribution, planned.number)
    inputs = input_distribution.draw(size.reference, planned.distribution, seed, size.seeds.first(size.position))
    if inputs is None:
        return True
    state = STATES.get(planned.state)
    if state is not None and state.inputs is not None:
        inputs = state.inputs(inputs)
    again, undefined = planned.distribution == TOUCHED, () if planned.distribution in (NAN, INFINITE) else None
    call = call_candidate(
        size.process, size.position, inputs, seed, size.seeds, hold=planned.held, again=again, undefined=undefined,
    )  # fmt: skip
    return conclude_trial(size, planned, call)


def conclude_trial(size: SizeUnderTest, planned: PlannedTrial, call: CandidateCall) -> bool:
    """The reference's part of a trial, after the candidate's, and the comparison. False where the reference gave hardly a finite number.
    Raises CandidateFailure, ProblemError."""
    reference_run = size.reference.run(call.inputs, call.run_seed, first=planned.is_first)
    if planned.is_first and not reference_run.error:
        refuse_empty(size.reference.problem, reference_run)
        size.evidence.findings += report_nan(size.label, reference_run)
    comparison = None
    if call.run is not None and not reference_run.error:
        if planned.is_first and size.position == 0:
            size.evidence.findings += report_names(call.run.value, reference_run.expected.value)
        comparison = size.comparison.output(planned, call.run, reference_run)
        if planned.is_first and size.position == 0 and comparison.ok and size.comparison.rules.exact:
            size.evidence.findings += report_low_precision(call.run.value, reference_run.expected)
    _note_operators(size, planned, call.run)
    if not _reference_decides(size, planned, reference_run):
        if call.failure is not None and call.failure.status in (Status.TIMEOUT, Status.OUT_OF_MEMORY):
            raise call.failure
        return bool(reference_run.error) or reference_run.is_informative
    if comparison is not None and not comparison.ok and reference_run.without_tf32():
        call, comparison = _without_tf32(size, planned, call, comparison, reference_run)
    if comparison is not None and size.comparison.undecided(
        planned, comparison, reference_run, call.run.value if call.run is not None else None, beyond_first=size.position > 0
    ):
        return True
    if call.failure is not None and call.failure.refused and planned.distribution == CONSTANTS:
        said = call.failure.message.partition("\n")[0]
        text = f"It takes no other values for the masks, integers and scalars that the problem always passes. {said}"
        size.evidence.findings.append(Finding(check="fixed_inputs", message=text, severity=Severity.WARN))
        return True  # a clear refusal is no wrong result
    cause = ""
    if call.failure is not None or (comparison is not None and not comparison.ok):
        cause = _order(size, planned, call, reference_run) or _undefined_lanes(size, planned, call, reference_run)
    if call.failure is not None:
        call.failure.message = f"{cause}{call.failure.message} {_where(size, planned)}"
        raise call.failure
    assert call.run is not None
    assert comparison is not None
    if cause:
        comparison = replace(comparison, message=cause + comparison.message, precision=False)
    _decide(size, planned, call.seed, call.run, reference_run, comparison)
    return True


def _without_tf32(
    size: SizeUnderTest, planned: PlannedTrial, call: CandidateCall, comparison: Comparison, reference_run: ReferenceRun
) -> tuple[CandidateCall, Comparison]:
    """The run once more without TF32, where that makes anything of the reference's output. Where it is right then, so are all runs to come
    at this size."""
    process, before = size.process, reference_run.before
    if process.exact_products:
        return call, comparison
    process.exact_products = True
    if kept := {name: tensor for name, tensor in before.items() if name not in size.evidence.state_missing}:
        process.load(kept, size.reference.training)
    again = call_candidate(process, size.position, call.inputs, call.seed, size.seeds, hold=planned.held)
    found = None if again.run is None else size.comparison.output(planned, again.run, reference_run)
    if found is None or not found.ok:
        process.exact_products = False
        return call, comparison
    text = f"TF32 in convolutions alone makes anything of this output: its products were tried without it (sizes: {size.label})."
    size.evidence.findings.append(Finding(check="precision", message=text, severity=Severity.INFO))
    return again, found


def _order(size: SizeUnderTest, planned: PlannedTrial, call: CandidateCall, reference_run: ReferenceRun) -> str:
    """A sentence and a space where a run is wrong because of the order in which programs ran; empty elsewhere."""
    if call.run is None or size.process.device != "cpu":
        return ""
    orders = (True, True, False) if call.run.backwards else (True,)
    try:
        again = [size.process.run(call.inputs, call.run_seed, in_order=in_order) for in_order in orders]
    except CandidateFailure as failure:  # kernels that load what they stored are traced once that is known
        return f"{failure.message.partition(chr(10))[0]} " if failure.message.startswith("a race:") else ""
    right = tuple(size.comparison.output(planned, run, reference_run).ok for run in again)
    if all(right) and planned.is_first and not call.run.backwards:
        return f"{_ONLY_FIRST} "
    if right != (True, True, False):
        return ""
    text = "The result depends on the order in which the programs of a launch run, and a GPU keeps none"
    return f"{text}: a program may not read what another one of its launch writes. "


def _undefined_lanes(size: SizeUnderTest, planned: PlannedTrial, call: CandidateCall, reference_run: ReferenceRun) -> str:
    """A sentence and a space where masked lanes without a value make a run fail; empty elsewhere."""
    if size.process.device != "cpu":
        return ""

    def again(places: tuple[str, ...], fill: float) -> CandidateRun:
        return size.process.run(call.inputs, call.run_seed, undefined=places, fill=fill)

    found = explanation(size.process, again, lambda run: size.comparison.output(planned, run, reference_run).ok)
    return f"{found} " if found else ""


def _note_operators(size: SizeUnderTest, planned: PlannedTrial, run: CandidateRun | None) -> None:
    evidence, reference = size.evidence, size.reference
    evidence.reference_draws |= reference.draws
    if size.position == 0:
        evidence.observed_runs += run is not None
        if planned.is_first:
            evidence.reference_ops = dict(reference.ops)
            evidence.reference_flops = {name: float(amount) for name, amount in reference.flops.items()}
    if run is not None and reference.gradients:  # neither forward nor backward may be left to torch
        evidence.watched += operators_by_pass(reference, size.label, run)
        evidence.backward_launches += run.launches - run.forward_launches
    elif run is not None and not reference.gradients:
        evidence.watched.append(reference.watched_operators(f"(sizes: {size.label})", run.ops, run.flops))


def _reference_decides(size: SizeUnderTest, planned: PlannedTrial, run: ReferenceRun) -> bool:
    """Whether the reference gave something to compare with. On the problem's own inputs it must not fail."""
    if planned.distribution in OWN_VALUES:
        if run.error:
            problem = size.reference.problem
            raise ProblemError(run.error, where=problem.path or problem.name)
        return True
    into_both = planned.distribution == EQUAL and run.mutated_inputs
    finite = run.finite or (planned.distribution not in (NAN, INFINITE) and run.is_informative)
    return not run.error and finite and not run.unstable and not into_both


def _decide(
    size: SizeUnderTest, planned: PlannedTrial, seed: int, mine: CandidateRun, reference: ReferenceRun, comparison: Comparison
) -> None:
    """Keep the trial as evidence. Raises CandidateFailure where it shows that the candidate is wrong."""
    evidence = size.evidence
    buffers: tuple[str, ...] = ()
    if comparison.ok:
        buffers = size.comparison.wrong_buffers(planned, size.process, size.reference, reference, evidence.state_missing)
    reference.release()
    if planned.held:
        size.held.keep(mine.value, reference.expected.value)
    trial = Trial(
        sizes=size.label, seed=seed, kind=planned.distribution, ok=comparison.ok and not buffers, max_error=_finite(comparison.max_error),
        margin=_finite(comparison.margin), error=_finite(comparison.error), allowed=comparison.allowed,
        within_eager_error=comparison.within_eager_error, message=comparison.message,
    )  # fmt: skip
    written = tuple(i for i in sorted({*mine.mutated, *mine.written}) if i not in reference.mutated_inputs)
    evidence.add(TrialRun(
        trial, state=OWN if evidence.state_missing and planned.state == REFERENCE else planned.state, mutated_inputs=written,
        mutated_state=buffers, candidate=stats(mine.value), reference=stats(reference.expected.value), wall_ms=mine.wall_ms,
        busy_ms=mine.busy_ms, launches=mine.launches, kernel_flops=mine.kernel_flops, did=mine.did,
        exact_products=size.process.exact_products,
    ))  # fmt: skip
    if not comparison.ok:
        if comparison.precision:
            evidence.findings.append(Finding(check="precision", message=comparison.message))
        raise CandidateFailure(Status.INCORRECT, _explained(size, planned, comparison))
    if written:
        restored = "" if written[0] in mine.mutated else " The values are the same afterwards; others may have read them in between."
        text = f"The candidate writes into its inputs (tensor {written[0] + 1}); the reference does not.{restored} Write to new tensors."
        evidence.findings.append(Finding(check="inputs_written", message=text))
        raise CandidateFailure(Status.CHEATING, text)
    more = [text[:200] for text in mine.left if text not in reference.left]
    more = [text for text in more if text not in (KEEPS, KEEPS_INPUTS) or not _reference_keeps(size.reference, seed, text)]
    if KEEPS_INPUTS in more:
        more.remove(KEEPS_INPUTS)
        evidence.warn_once("kept_inputs", f"After a call {KEEPS_INPUTS}: memory fills with them.")
    if more and size.comparison.rules.exact:
        text = f"Right, but after a call {more[0]}; with the reference it is not so. (sizes: {size.label})"
        raise CandidateFailure(Status.INCORRECT, text)
    if buffers and size.comparison.rules.exact:
        shown = ", ".join(buffers[:4])
        text = f"After a run the buffers {shown} differ from the reference's: update them as the reference does (training mode)."
        raise CandidateFailure(Status.INCORRECT, f"{text} (sizes: {size.label})")


def _reference_keeps(reference: Reference, seed: int, what: str) -> bool:
    inputs = reference.inputs(seed)
    with reference.buffers_restored(), reference.calling(seed):
        if what == KEEPS_INPUTS:
            return keeps_inputs(lambda given: reference.called(reference.model)(*given), lambda: reference.inputs(seed))
        return keeps_all(lambda: reference.called(reference.model)(*inputs))


def _where(size: SizeUnderTest, planned: PlannedTrial) -> str:
    return f"(sizes: {size.label}, inputs: {NAMES.get(planned.distribution, planned.distribution)})"


def _explained(size: SizeUnderTest, planned: PlannedTrial, comparison: Comparison) -> str:
    """What is wrong, and what the trial's state says of it."""
    text = f"{comparison.message} {_where(size, planned)}"
    explanation = STATES[planned.state].explanation if planned.state in STATES else EXPLANATIONS.get(planned.distribution)
    if explanation:
        return f"{explanation} {text}"
    if size.evidence.state_missing:
        names = ", ".join(size.evidence.state_missing[:4])
        text += f" ModelNew lacks the reference's parameters or buffers {names}, so its own initial values were used:"
        text += " keep names and shapes."
    return text


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def explanation(
    process: CandidateProcess, again: Callable[[tuple[str, ...], float], CandidateRun], right: Callable[[CandidateRun], bool]
) -> str:  # fmt: skip
    """Which loads a wrong result depends on; empty where it is wrong with other numbers there too.

    ``again``: the wrong run once more, where the lanes of the loads at these places stay undefined and others hold a number.
    """

    def good(places: tuple[str, ...], fill: float) -> bool:
        try:
            return right(again(places, fill))
        except CandidateFailure:
            return False

    try:
        places = process.report().undefined_lanes
    except CandidateFailure:  # the worker is gone
        return ""
    fill = next((fill for fill in _FILLS if good((), fill)), None) if places else None
    if fill is None or good(places, fill) or good(places, fill):  # a run as the wrong one was must be wrong again
        return ""
    named = " and ".join([place for place in places[:_MOST] if not good((place,), fill)][:3]) or places[0]
    return (
        f"The result depends on lanes that are masked off in a load of {named}, which gives them no value: they may hold anything. "
        'Pass other= (0.0 for a sum, -inf for a maximum; padding_option="zero" for a block pointer), or replace them by tl.where before '
        "they count."
    )


def stats(value: object) -> tuple[OutputStats, ...]:
    """Figures of all tensors of an output."""
    return tuple(tensor_stats(t) for t in values.flatten(value))


def tensor_stats(tensor: torch.Tensor) -> OutputStats:
    shape, kind = tuple(tensor.shape), values.dtype_name(tensor.dtype)
    digest = hashlib.sha256(_some_bytes(tensor)).hexdigest()
    if tensor.numel() == 0 or tensor.is_complex():
        return OutputStats(shape, kind, 0.0, 0.0, 0.0, 0.0, 0.0, digest)
    numbers = tensor.detach().reshape(-1)
    numbers = numbers[:: max(1, numbers.numel() // _SAMPLE)]
    numbers = numbers.double() if numbers.numel() <= _DIGEST_LIMIT else numbers.float()
    finite = numbers[torch.isfinite(numbers)]
    if finite.numel() == 0:
        return OutputStats(shape, kind, 0.0, 0.0, 0.0, 0.0, 0.0, digest)
    zeros = float((numbers == 0).sum()) / numbers.numel()
    deviation = float(finite.std(correction=0))
    return OutputStats(shape, kind, float(finite.mean()), deviation, float(finite.min()), float(finite.max()), zeros, digest)


def _some_bytes(tensor: torch.Tensor) -> bytes:
    """All bytes of a small tensor; of a large one a strided sample with its sum."""
    flat = tensor.detach().reshape(-1)
    if flat.numel() > 2**20:
        step = flat.numel() // 2**18
        sample = flat[::step].contiguous()
        tail = repr(float(flat.double().sum() if flat.numel() <= _DIGEST_LIMIT else flat.float().sum())).encode()
    else:
        sample, tail = flat.contiguous(), b""
    return bytes(sample.view(torch.uint8).cpu().numpy().tobytes()) + tail if flat.numel() else b""
