"""Tries inputs without a constraint that all have which a problem draws.

What is wrong there is told: the candidate is right for the problem.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from kernelllm.core.types import Finding, Severity
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.trials.comparison.compare import Rules
from kernelllm.judge.trials.first_runs import build
from kernelllm.judge.trials.inputs.input_distribution import WHICH_WINS, can_run_on_nan
from kernelllm.judge.trials.reference_runs.device_asserts import INDEXING, no_device_assert
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.problems.broken_constraints import (
    ALL,
    BELOW_ZERO,
    ENDS,
    HUGE,
    LARGE,
    LOWEST,
    MASKED,
    NONE,
    SENTINEL,
    SKIPPING,
    TWICE,
    UNSORTED,
    WHERE,
    WIDE,
    without,
)
from kernelllm.problems.nested import mapped, tensors

NAME = "inputs_as_drawn"
_RULES, _USUAL = Rules(tolerance=1e-2, scaled=True, precise=False), Rules(scaled=True, precise=False)
_OF_USUAL_SIZE = UNSORTED, TWICE, SKIPPING, ALL, NONE, SENTINEL
"""Kinds that leave numbers as large as the problem draws them."""
_SIZES = (*INDEXING, "repeat_interleave", "bincount", "_local_scalar_dense", "histc", "triu_indices", "put")
"""Parts of the names of operators to which a large number is a position, or an amount of memory."""
_OF_ANY_SIZE = LARGE, WIDE, ENDS, BELOW_ZERO, HUGE, LOWEST
_POSITIONS, _OUTSIDE = (LARGE, WIDE, ENDS), "illegal memory access"
"""Kinds at which a kernel that goes as far as a length says leaves its tensors; the reference may compare with it alone."""
_OF_SCORES = ("softmax", "exp", "max")
"""Parts of the names of operators that give numbers for minus infinity."""


def try_unconstrained_inputs(process: CandidateProcess, reference: Reference, seed: int) -> list[Finding]:
    """Warnings, and as information what the candidate refuses."""
    if reference.draws or reference.heavy:
        return []
    warnings, limits = list[str](), list[str]()
    build(process, reference)
    for kind, inputs in _drawn(reference, seed):
        with reference.buffers_restored():
            run = reference.run(mapped(inputs, torch.Tensor.clone), seed)
            floats = _any_floats(run.expected.value)
            if run.error or not run.finite or run.mutated_inputs or (floats if kind == WIDE else kind == MASKED and not floats):
                continue
            failed = True
            try:
                value = process.run(inputs, seed).value
                failed = False
            except CandidateFailure as failure:
                said = failure.message.partition("\n")[0].removeprefix("The candidate raised ")[:160]
                told, text = (limits, f"It refuses inputs {WHERE[kind]}: {said}")
                if kind in _POSITIONS and failure.message.startswith(_OUTSIDE):
                    text = f"It takes whole numbers for lengths or positions within its tensors: {said}"
                elif not failure.refused:
                    told, text = warnings, f"Right for inputs as the problem draws them; it fails {WHERE[kind]}: {said}"
                told.append(text)
            else:
                rules = _USUAL if kind in _OF_USUAL_SIZE else _RULES
                wrong = not run.compared(value, rules).ok and not run.unstable and not run.by_rounding(value, rules)
                warnings += [f"Right for inputs as the problem draws them; wrong {WHERE[kind]}."] if wrong else []
        if failed or process.lost or reference.buffers():  # which runs change; and what a model keeps of such inputs may be of no use
            build(process, reference)
    found = [Finding(check=NAME, message=text, severity=Severity.WARN) for text in warnings]
    return found + [Finding(check="limits", message=text, severity=Severity.INFO) for text in limits]


def _any_floats(value: object) -> bool:
    """Whether any result may hang on the rounding of a large whole number; none says of a minus infinity what it made of it."""
    return any(tensor.is_floating_point() or tensor.is_complex() for tensor in tensors(value))


def _drawn(reference: Reference, seed: int) -> Iterator[tuple[str, list[object]]]:
    """Each kind, with inputs that the reference survives, and for which it alone says what is right."""
    for kind in WHERE:
        if kind == MASKED and not (can_run_on_nan(reference) and any(part in name for name in reference.ops for part in _OF_SCORES)):
            continue
        made = without(reference.inputs(seed), reference.inputs(seed + 1), kind, seed, reference.problem.source)
        if made is None or (kind in _OF_ANY_SIZE and any(part in name for name in reference.ops for part in _SIZES)):
            continue
        if kind == LOWEST and any(part in name for name in reference.ops for part in _OF_SCORES[:2]):
            continue  # kernels begin with a floor of their own for scores, which are never so low
        if kind == HUGE and (reference.flops or any(part in name for name in reference.ops for part in _OF_SCORES[:2])):
            continue  # a product of such is known to no digit of what exp makes of it, and may be rounded as its operands
        if kind == TWICE and any(WHICH_WINS.match(name) for name in reference.ops):
            continue
        if no_device_assert(reference, made, whole_numbers=kind in (LARGE, WIDE, ENDS, SENTINEL, TWICE, SKIPPING, BELOW_ZERO, LOWEST)):
            yield kind, made
