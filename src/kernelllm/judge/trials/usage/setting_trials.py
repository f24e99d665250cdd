"""Tries the same call under other settings of the program around it, and with other kinds of tensors; no result may depend on that."""

from __future__ import annotations

import re
from typing import Any

import torch

from kernelllm.core.types import Finding, Severity
from kernelllm.judge.caller_settings import (
    ANOMALY,
    AROUND,
    BEHIND,
    CUDNN,
    DETERMINISTIC,
    FLOAT64,
    FROZEN,
    FUNCTIONAL,
    INFERENCE,
    LAZY,
    MOVED,
    MULTIPROCESSORS,
    OWN,
    PARAMETERS,
    PRECISION,
    RESULTS,
    STRICT,
    THREAD,
    TRACED,
    TRAINED,
    UNALIGNED,
    WHERE,
)
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.observation import AUTOGRAD, OF_ALL
from kernelllm.judge.transport.values import flatten
from kernelllm.judge.trials.comparison.compare import Expected, Rules, compare
from kernelllm.judge.trials.first_runs import build
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.judge.trials.reference_runs.reference_results import result

NAME = "silently_different"
_SLOW_MS = 500.0
_RULES = Rules(tolerance=1e-3, precise=False)
"""Of one candidate's own results: only the order of sums differs."""
_TF32 = Rules(tolerance=2e-2, scaled=True, precise=False)
"""Products may be in TF32 then."""
_ASKS = re.compile("autocast|current_stream")
"""What a file that asks for the surroundings of its call names."""
_IF_NAMED = {
    TRACED: re.compile("compiling|exporting|tracing"), STRICT: re.compile("deterministic"), CUDNN: re.compile("cudnn"),
    FUNCTIONAL: re.compile(r"Parameter\)|is_leaf|_parameters\b"), TRAINED: re.compile(r"\.grad\b"),
    MOVED: re.compile(r"\b_apply\b|def (to|cuda|cpu|half|float|double|bfloat16|train|eval)\("),
}  # fmt: skip
"""Settings that are tried for a file that names something of them."""
_MADE = re.compile(r"aten\.(zeros|ones|full|arange|empty|eye|linspace|logspace|rand|scalar_tensor|lift|tril_indices)")
"""Operators that may make tensors of the default dtype."""


def try_settings(process: CandidateProcess, reference: Reference, seed: int, source: str) -> list[Finding]:
    """Warnings, and as information that results get another type. What fails says so. ``source``: the candidate's."""
    if reference.draws or reference.heavy:
        return []
    found = list[Finding]()
    build(process, reference)
    inputs = reference.inputs(seed)
    own = process.run(inputs, seed)
    if own.wall_ms > _SLOW_MS:
        text = f"A call takes {own.wall_ms / 1000:.1f} s here, so that other settings of torch and kinds of inputs were not tried."
        return [Finding(check="limits", message=text, severity=Severity.INFO)]
    aligned = [BEHIND] if process.device == "cpu" and ("data_ptr" in source or "storage" in source) else []
    behind = [UNALIGNED, MULTIPROCESSORS, *aligned] if process.device == "cpu" else [BEHIND]  # Triton compiles anew for other alignments
    lazy = [LAZY] if any(tensor.is_complex() for tensor in flatten(inputs)) else []
    around = [AROUND] if process.device == "cpu" and _ASKS.search(source) and _same_below_autocast(reference, inputs, seed) else []
    double = [FLOAT64] if _typed(reference, inputs) else []
    asked = [name for name, pattern in _IF_NAMED.items() if pattern.search(source)]
    always = (DETERMINISTIC, ANOMALY, PRECISION, FROZEN, RESULTS, PARAMETERS, INFERENCE, THREAD)
    own_results = [] if reference.buffers() else [OWN]  # a call before may change buffers
    for name in (*always, *own_results, *behind, *around, *lazy, *double, *asked):
        try:
            process.load(reference.buffers(), reference.training)
            value = process.run(inputs, seed, setting=name).value
        except CandidateFailure as failure:  # whoever calls it would see that
            if name == THREAD:
                text = f"It fails {WHERE[name]}: {failure.message.partition(chr(10))[0][:160]}"
                found.append(Finding(check="limits", message=text, severity=Severity.INFO))
            if failure.message.startswith("illegal memory access"):  # but not this
                text = f"It leaves its tensors' memory {WHERE[name]}: {failure.message.partition(chr(10))[0][:160]}"
                found.append(Finding(check=NAME, message=text, severity=Severity.WARN))
            build(process, reference)
            continue
        same = compare(value, Expected(own.value), _TF32 if name == PRECISION else _RULES).ok
        # Another GPU or alignment has other kernels: they may round elsewhere, and steps or decisions make much of that.
        other_kernels = name in (MULTIPROCESSORS, UNALIGNED, BEHIND)
        if not same and not (other_kernels and reference.run(inputs, seed).compared(value, Rules()).ok):
            found.append(_told(name, own.value, value))
        if name == RESULTS and f"{OF_ALL}{AUTOGRAD}" in process.report().tampered:
            text = "Switched autograd on or off and left it so, for all other code of the process."
            found.append(Finding(check="tampering", message=text, severity=Severity.WARN))
    return found


def _told(name: str, own: Any, value: Any) -> Finding:
    if name == FLOAT64 and [t.dtype for t in flatten(value)] != [t.dtype for t in flatten(own)]:
        text = "With another default dtype (torch.set_default_dtype) its results have another type: say dtype= where tensors are made."
        return Finding(check="limits", message=text, severity=Severity.INFO)
    return Finding(check=NAME, message=f"The result is another one {WHERE[name]}, and nothing is said.", severity=Severity.WARN)


def _same_below_autocast(reference: Reference, inputs: list[Any], seed: int) -> bool:
    usual = result(reference, reference.model, inputs, seed)
    with torch.autocast("cpu", torch.bfloat16):
        found = result(reference, reference.model, inputs, seed)
    return usual is not None and found is not None and compare(found, Expected(usual), _RULES).ok


def _typed(reference: Reference, inputs: list[Any]) -> bool:
    """Whether the reference's result hangs on no default dtype: nothing is made in it, and no whole number becomes a fraction."""
    floats = all(tensor.dtype == torch.float32 for tensor in (*flatten(inputs), *reference.state().values()))
    return floats and not any(_MADE.match(name) for name in reference.ops)
