"""Tries numbers near zero, for references that tell what becomes of them.

Those that call ``expm1`` or ``log1p`` are exact for these: ``exp(x) - 1`` and ``log(1 + x)`` lose the digits of a small x. That is a
warning: within the tolerance of the problem's own numbers, it is as right.

Those whose results are in proportion to their inputs (sums, products, maxima) know no small numbers. Where inputs are a power of two as
large, so is all that an honest kernel computes, to the last bit. Who leaves out what is small is wrong. Denormal numbers have fewer
digits: who loses them is told.
"""

from __future__ import annotations

import re

import torch

from kernelllm.core.types import Finding, Severity, Status
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.trials.first_runs import build
from kernelllm.judge.trials.inputs.input_distribution import near_zero
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.problems import nested

NAME = "precision"
_EXACT_NEAR_ZERO = re.compile(r"aten\.(special_)?(expm1|log1p)_?\.")
_SIZE = 1e-6
_SCALE = 2.0**-20
_DENORMAL, _LOST = 2.0**-130, 0.1
"""Where usual numbers become denormal ones, and the relative error from which their results are lost."""
_POWERS = (1, 2, 3)
"""Of the scale, by which results may change."""
_WRONG, _WELL_KNOWN = 1e-2, 1e-4
"""Relative errors of an output by rms: of one that lost its digits, and up to which eager's own is exact."""


def try_near_zero(process: CandidateProcess, reference: Reference, seed: int) -> list[Finding]:
    """A warning where the result of such a reference is lost. Nothing where other inputs cannot be so small."""
    called = next((found[2] for name in reference.ops if (found := _EXACT_NEAR_ZERO.match(name))), "")
    if not called or reference.draws or reference.heavy or (inputs := near_zero(reference, seed, _SIZE)) is None:
        return []
    build(process, reference)
    with reference.buffers_restored():
        run = reference.run(nested.mapped(inputs, torch.Tensor.clone), seed)
        if run.error or not run.finite or run.mutated_inputs or not run.refine(rounding=False) or not run.expected.has_exact:
            return []
        value, exact = process.run(inputs, seed).value, list(nested.tensors(run.expected.exact))
    mine, eager = list(nested.tensors(value)), list(nested.tensors(run.expected.value))
    if [t.shape for t in mine] != [t.shape for t in exact] or any(_error(*pair) > _WELL_KNOWN for pair in zip(eager, exact, strict=True)):
        return []
    errors = [_error(*pair) for pair in zip(mine, exact, strict=True)]
    if max(errors, default=0.0) <= _WRONG:
        return []
    other = "exp(x) - 1" if called == "expm1" else "log(1 + x)"
    text = f"The reference calls {called}, which is exact near zero. For numbers of about {_SIZE:g} the candidate is off by "
    text += f"{max(errors):.0%}, as {other} is: use libdevice.{called}."
    return [Finding(check=NAME, message=text, severity=Severity.WARN)]


def try_homogeneity(process: CandidateProcess, reference: Reference, seed: int) -> None:
    """Raises CandidateFailure where the reference's results are in proportion to its inputs, and the candidate's are not."""
    if reference.draws or reference.heavy or (inputs := near_zero(reference, seed, _SCALE)) is None:
        return
    with reference.buffers_restored():
        usual = reference.run(reference.inputs(seed), seed, refinable=False)
    with reference.buffers_restored():
        small = reference.run(nested.mapped(inputs, torch.Tensor.clone), seed, refinable=False)
    if any(run.error or not run.finite or run.mutated_inputs for run in (usual, small)):
        return
    pairs = list(zip(nested.tensors(usual.expected.value), nested.tensors(small.expected.value), strict=True))
    powers = {number: power for number, pair in enumerate(pairs) if (power := _proportion(*pair))}
    if not powers:
        return
    mine = []
    for given in (reference.inputs(seed), inputs):
        build(process, reference)  # runs change buffers
        try:
            mine.append(list(nested.tensors(process.run(given, seed).value)))
        except CandidateFailure:
            return
    if any([t.shape for t in made] != [t.shape for t, _ in pairs] for made in mine):
        return
    # where several results are right, such as any of the values for one place, its own tell
    right = {n: (pairs[n][1], mine[0][n] * _SCALE**power) for n, power in powers.items()}
    worst = max(min(_error(mine[1][n], one) for one in both) for n, both in right.items())
    if worst <= _WRONG:
        return
    text = "Silently different for inputs a millionth as large: the reference's results stay in proportion, and these are off by"
    raise CandidateFailure(Status.INCORRECT, f"{text} {worst:.0%}. What is small must not be left out.", check="silently_different")


def try_denormal(process: CandidateProcess, reference: Reference, seed: int) -> list[Finding]:
    """A warning where the results of such a reference stay in proportion for denormal numbers, and the candidate's are lost. On a GPU
    atomics take such numbers for zero: a limit."""
    if reference.draws or reference.heavy or (inputs := near_zero(reference, seed, _DENORMAL)) is None:
        return []
    with reference.buffers_restored():
        usual = reference.run(reference.inputs(seed), seed, refinable=False)
    with reference.buffers_restored():
        small = reference.run(nested.mapped(inputs, torch.Tensor.clone), seed, refinable=False)
    if any(run.error or not run.finite or run.mutated_inputs for run in (usual, small)):
        return []
    theirs = list(nested.tensors(small.expected.value))
    pairs = list(zip(nested.tensors(usual.expected.value), theirs, strict=True))
    known = [number for number, pair in enumerate(pairs) if _proportion(*pair, _DENORMAL, powers=(1,))]
    build(process, reference)
    try:
        mine = list(nested.tensors(process.run(inputs, seed).value)) if known else []
    except CandidateFailure:
        return []
    if [t.shape for t in mine] != [t.shape for t in theirs] or max(_error(mine[n], theirs[n]) for n in known) < _LOST:
        return []
    text = "Denormal numbers (below 1.2e-38) are lost, where the reference computes with them: nothing may be taken for zero by its size."
    severity = Severity.WARN if reference.device == "cpu" else Severity.INFO
    return [Finding(check=NAME if severity is Severity.WARN else "limits", message=text, severity=severity)]


def _proportion(usual: torch.Tensor, small: torch.Tensor, scale: float = _SCALE, powers: tuple[int, ...] = _POWERS) -> int:
    """The power of the scale by which a result changes; 0 where it does not change so."""
    if not usual.is_floating_point() or usual.shape != small.shape or not bool(usual.any()):
        return 0
    return next((power for power in powers if _error(small.double(), usual.double() * scale**power) <= _WELL_KNOWN), 0)


def _error(mine: torch.Tensor, exact: torch.Tensor) -> float:
    """The relative error by rms; zero of what is no floating-point number."""
    if not exact.is_floating_point() or not exact.numel() or not bool((size := exact.double().norm()) > 0):
        return 0.0
    return float((mine.double() - exact.double()).norm() / size)
