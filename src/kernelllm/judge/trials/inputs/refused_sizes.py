"""Finds the sizes that a candidate says it was not written for, and tries whether it refuses them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kernelllm.core.types import Status
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.trials.comparison.compare import Rules
from kernelllm.judge.trials.first_runs import build
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.problems.readable_sizes import readable

NAME = "silently_different"
_RULES = Rules(tolerance=1e-2, precise=False)


def try_other_sizes(process: CandidateProcess, references: Sequence[Reference], fixed: Mapping[str, Any], seed: int) -> None:
    """At sizes that a candidate says it was not written for. Raises CandidateFailure where it does not refuse them, and is wrong."""
    for reference in references:
        names = readable(reference.problem.source)
        other = ", ".join(f"{names.get(name, name)} = {new}" for name, (_, new) in reference.sizes.changed.items() if name in fixed)
        inputs = reference.inputs(seed)
        if not other or reference.draws:
            continue
        try:  # the candidate first: the reference may write into its inputs
            build(process, reference)
            value = process.run(inputs, seed).value
        except CandidateFailure:
            continue
        with reference.buffers_restored():
            right = reference.run(inputs, seed)
            decided = right.is_informative and not reference.draws
            wrong = decided and not right.compared(value, _RULES).ok and not right.by_rounding(value, _RULES)
        if wrong:
            text = f"Silently different with {other}, though it says that it was not written for that"
            text += ": the result is wrong, and nothing is said. Follow it, or raise an error."
            raise CandidateFailure(Status.INCORRECT, text, check=NAME)


def refused_sizes(failure: CandidateFailure | None, references: Sequence[Reference]) -> dict[str, Any]:
    """Constants of the problem that a refusal is about, with the problem's own values: those of the dimensions in which a shape that it got
    differs from one that it takes, then those that it names, and that were changed. Where it names none of these values, those that it
    calls by their names (``written for SEQ // CHUNK == 32``), then those whose other value it names (``must be a power of two, got 23``).
    An error that it raises itself and that names none of them is about those that were equal before, else about all."""
    if failure is None or not failure.refused:
        return {}
    said = f"{failure.message}\n{failure.trace}"
    numbers = {int(text) for text in re.findall(r"\b\d+\b", said)}
    changed = [(name, own, new) for one in references for name, (own, new) in one.sizes.changed.items()]
    if apart := _naming(_where_shapes_differ(failure.message), changed):
        return apart
    names = readable(references[0].problem.source) if references else {}
    words = set(re.findall(r"[A-Za-z_]\w*(?:\.shape\[\d+\]|\.size\(\d+\))?", said))
    called = {name: own for name, own, _ in changed if _spoken(names.get(name, name)) & words}
    if found := _naming(numbers, ((name, own, own) for name, own, _ in changed)):
        told = _naming(numbers, (size for size in changed if size[0] in called))  # width >= 8: not the batch, which is 8
        both = {name: own for name, own in found.items() if name in called}  # head_dim in (32, 64): not the length, which is 64
        return both or told or found
    if found := called or _naming(numbers, changed):
        return found
    own = re.search(r"\b(raise|assert)\b", failure.trace.rstrip().rpartition("\n")[2])
    return (_parted(references) or {name: value for name, value, _ in changed}) if own else {}


def _parted(references: Sequence[Reference]) -> dict[str, Any]:
    """Sizes that are equal in the problem and not in a set that was tried: who refuses that without naming any may want them equal."""
    found: dict[str, Any] = {}
    for reference in references:
        news: dict[Any, set[Any]] = {}
        for own, new in reference.sizes.changed.values():
            if isinstance(own, int):
                news.setdefault(own, set()).add(new)
        found |= {name: own for name, (own, _) in reference.sizes.changed.items() if isinstance(own, int) and len(news[own]) > 1}
    return found


def _spoken(name: str) -> set[str]:
    """How a candidate may call a size: that of a dimension by its tensor."""
    found = re.fullmatch(r"(\w+) dim (\d+)", name)
    return {f"{found[1]}_size{found[2]}", f"{found[1]}.shape[{found[2]}]", f"{found[1]}.size({found[2]})"} if found else {name}


def _where_shapes_differ(said: str) -> set[int]:
    """The sizes of dimensions that differ, where a refusal names the shape that it takes and the one that it got."""
    shapes = [[int(size) for size in text.split(",") if size.strip()] for text in re.findall(r"\(((?:\d+, )+\d+|\d+,)\)", said)]
    if len(shapes) != 2 or len(shapes[0]) != len(shapes[1]):
        return set()
    return {size for pair in zip(*shapes, strict=True) if pair[0] != pair[1] for size in pair}


def _naming(numbers: set[int], values_of: Iterable[tuple[str, Any, Any]]) -> dict[str, Any]:
    return {name: own for name, own, value in values_of if numbers & set(_whole_numbers(value))}


def _whole_numbers(value: Any) -> Iterator[Any]:
    """A size, or the sizes in a list of them, of lists too."""
    for part in value if isinstance(value, tuple | list) else ():
        yield from _whole_numbers(part)
    if not isinstance(value, tuple | list):
        yield value
