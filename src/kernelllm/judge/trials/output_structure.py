"""Reports outputs that are empty, NaN alone, or have lost the names of their parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kernelllm.core.errors import ProblemError
from kernelllm.core.types import Finding, Problem, Severity, Status
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.transport.values import flatten
from kernelllm.judge.trials.reference_runs.reference_run import ReferenceRun


def refuse_empty(problem: Problem, found: ReferenceRun) -> None:
    """Raises ProblemError where a reference gives nothing, or tensors without elements alone: nothing could be wrong."""
    outputs = flatten(found.expected.value)
    if isinstance(found.expected.value, str | None) and not found.mutated_inputs and not found.buffers:
        text = f"The reference's forward() returns {found.expected.value!r:.40}: there is nothing to judge."
        raise ProblemError(text, where=problem.path or problem.name, fix="Return what it computes.")
    if outputs and not any(t.numel() for t in outputs):
        shapes = ", ".join(str(list(t.shape)) for t in outputs[:4])
        raise ProblemError(f"The reference's outputs are empty ({shapes}): there is nothing to judge.", where=problem.path or problem.name)


def report_nan(sizes: str, found: ReferenceRun) -> list[Finding]:
    """Where a reference gives NaN alone: of any candidate that does so too, its trials would say that it is right."""
    floats = [t for t in flatten(found.expected.value) if t.is_floating_point() and t.numel()]
    if not floats or not all(bool(t.isnan().all()) for t in floats):
        return []
    text = f"On the problem's own inputs the reference gives NaN alone (sizes: {sizes}): that a candidate does so too says little."
    return [Finding(check="nan", message=text, severity=Severity.WARN)]


def report_names(mine: Any, reference: Any) -> list[Finding]:
    """Where the reference gives a named tuple, and the candidate a sequence whose parts have no names.

    Raises CandidateFailure where they have the same names in another order: who reads by name gets another part."""
    for path, own, names in _named("output", mine, reference):
        if own == names:
            continue
        if set(own) == set(names):
            text = f"{path} has its names in the order {', '.join(own)}; the reference's is {', '.join(names)}."
            raise CandidateFailure(Status.INCORRECT, text)
        has = f"has the names {', '.join(own)}" if own else "is a plain sequence"
        text = f"The reference's {path} is a named tuple ({', '.join(names)}), and the candidate's {has}: reading it by name fails."
        return [Finding(check="output_names", message=text, severity=Severity.WARN)]
    return []


def _named(path: str, mine: Any, reference: Any) -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Each named tuple of the reference: where it is, the candidate's names there, and its own."""
    if isinstance(reference, Mapping) and isinstance(mine, Mapping):
        for key in (key for key in reference if key in mine):
            yield from _named(f"{path}[{key!r}]", mine[key], reference[key])
    elif isinstance(reference, list | tuple) and isinstance(mine, list | tuple):
        if names := getattr(reference, "_fields", ()):
            yield path, getattr(mine, "_fields", ()), names
        for number, (own, other) in enumerate(zip(mine, reference, strict=False)):
            yield from _named(f"{path}[{number}]", own, other)
