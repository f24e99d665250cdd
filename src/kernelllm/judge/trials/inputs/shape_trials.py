"""Tries inputs of other shapes that no problem gives and the reference takes, and tells what a candidate makes of them.

One more dimension in front, as a layer gets them that was tried on matrices, a first one of size 1 in one of two inputs, a list with one
tensor more, and rows that are one in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from kernelllm.core.types import Finding, Severity
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.trials.first_runs import build
from kernelllm.judge.trials.reference_runs.device_asserts import no_device_assert
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.judge.trials.reference_runs.reference_results import is_wrong, result
from kernelllm.problems import nested

NAME = "silently_different"
_OTHER_KIND: dict[type, type] = {list: tuple, tuple: list}
_LEAST = 2
"""Dimensions of an input that gets one more."""


def try_more_dimensions(process: CandidateProcess, reference: Reference, seed: int) -> list[Finding]:
    """Told as a limit where such inputs give another result than the reference's, and nothing is said: no problem gives them."""
    if reference.draws or reference.heavy:
        return []
    for told, of_inputs in _RANKS.items():
        for inputs in of_inputs(reference.inputs(seed), reference.inputs(seed + 1)):
            expected = _result(reference, inputs, seed)
            if expected is None:
                continue
            build(process, reference)
            try:
                value = process.run(inputs, seed).value
            except CandidateFailure:  # no result is no wrong one
                break
            if is_wrong(value, expected):
                text = f"Its results are other ones than the reference's, without an error, for inputs with {told}."
                return [Finding(check="limits", message=text, severity=Severity.INFO)]
            break
    return []


def try_broadcast(process: CandidateProcess, reference: Reference, seed: int) -> list[Finding]:
    """Try inputs where the second of two inputs of one shape has one row for all of the first one's."""
    inputs = reference.inputs(seed)
    given = [value for value in inputs if isinstance(value, torch.Tensor)]
    if reference.draws or reference.heavy or len(given) < _LEAST or given[0].shape != given[1].shape or given[0].dim() < _LEAST:
        return []
    one_row = [value[:1].clone() if value is given[1] else value for value in inputs]
    expected = _result(reference, one_row, seed) if len(given[1]) > 1 else None
    if expected is None:
        return []
    build(process, reference)
    try:
        wrong = is_wrong(process.run(one_row, seed).value, expected)
    except CandidateFailure as failure:
        wrong = failure.message.startswith("illegal memory access")
    text = "Its results are other ones than the reference's, without an error, where the second input has one row for all of the first's."
    return [Finding(check="limits", message=text, severity=Severity.INFO)] if wrong else []


def try_other_lengths(process: CandidateProcess, reference: Reference, seed: int) -> list[Finding]:
    """Try inputs where all but the first that have its dimensions are longer along one of these, as keys and values may be."""
    inputs = reference.inputs(seed)
    given = [value for value in inputs if isinstance(value, torch.Tensor)]
    if reference.draws or reference.heavy or len(given) < _LEAST or given[0].dim() < _LEAST:
        return []
    more = reference.inputs(seed + 1)  # drawn anew: the same again, keys say, may change nothing
    grows = [isinstance(one, torch.Tensor) and one is not given[0] and one.dim() == given[0].dim() for one in inputs]
    fits = all(a.shape == b.shape for a, b, grown in zip(inputs, more, grows, strict=True) if grown)
    for dim in range(given[0].dim()) if fits else ():
        longer = [torch.cat([a, b], dim) if grown else a for a, b, grown in zip(inputs, more, grows, strict=True)]
        expected = _result(reference, longer, seed) if any(grows) else None
        if expected is None:
            continue
        build(process, reference)
        try:
            wrong = is_wrong(process.run(longer, seed).value, expected)
        except CandidateFailure as failure:
            wrong = failure.message.startswith("illegal memory access")
        text = f"Its results are other ones than the reference's, without an error, where later inputs are longer along dimension {dim}."
        return [Finding(check="limits", message=text, severity=Severity.INFO)] if wrong else []
    return []


def try_longer_lists(process: CandidateProcess, reference: Reference, seed: int) -> list[Finding]:
    """A warning where a list among the inputs has one tensor more than the problem gives, and the result is silently another one."""
    inputs = reference.inputs(seed)
    found = [i for i, value in enumerate(inputs) if isinstance(value, list) and value and isinstance(value[-1], torch.Tensor)]
    if reference.draws or reference.heavy or not found:
        return []
    longer = [[*value, value[0].flip(0)] if i in found else value for i, value in enumerate(inputs)]
    expected = _result(reference, longer, seed)
    text = "With a list of one tensor more the result is another one than the reference's, and nothing is said."
    return _told(process, reference, longer, seed, expected, text, usual=(inputs, result(reference, reference.model, inputs, seed)))


def try_other_sequences(process: CandidateProcess, reference: Reference, seed: int) -> list[Finding]:
    """A warning where a tuple comes in the place of a list among the inputs, or the reverse, and the result is another one."""
    inputs = reference.inputs(seed)
    others = [_OTHER_KIND[type(value)](value) if type(value) in _OTHER_KIND else value for value in inputs]
    if reference.draws or reference.heavy or all(a is b for a, b in zip(inputs, others, strict=True)):
        return []
    expected = _result(reference, others, seed)
    text = "With a tuple in the place of a list among its inputs, or the reverse, the result is another one, and nothing is said."
    return _told(process, reference, others, seed, expected, text, usual=(inputs, result(reference, reference.model, inputs, seed)))


def try_expanded(process: CandidateProcess, reference: Reference, seed: int) -> list[Finding]:
    """Try inputs all of whose rows are one in memory, as ``expand`` makes them. ``reference`` gets copies."""
    if reference.draws or reference.heavy:
        return []
    inputs = nested.mapped(reference.inputs(seed), lambda t: t[:1].clone().expand_as(t) if t.dim() >= _LEAST and len(t) > 1 else t)
    if not any(0 in t.stride() for t in nested.tensors(inputs)):
        return []
    copies = nested.mapped(inputs, lambda t: t.contiguous())
    expected = _result(reference, copies, seed)
    text = "With inputs whose rows are one in memory (expand) the result is another one: follow their strides, or call .contiguous()."
    return _told(process, reference, inputs, seed, expected, text, usual=(copies, expected))


def _result(reference: Reference, inputs: list[Any], seed: int) -> Any:
    """The reference's on inputs that no problem gives: its positions may lie beyond such tensors, and its rows be probabilities no more."""
    return result(reference, reference.model, inputs, seed) if no_device_assert(reference, inputs, whole_numbers=True) else None


def _told(
    process: CandidateProcess, reference: Reference, inputs: list[Any], seed: int, expected: Any, text: str, *, usual: tuple[list[Any], Any]
) -> list[Finding]:
    """``usual``: other inputs, and what the reference makes of them. Where that is wrong, too, rounding may be the cause."""
    if expected is None or usual[1] is None:
        return []
    if not _wrong(process, reference, inputs, seed, expected) or _wrong(process, reference, usual[0], seed, usual[1]):
        return []
    return [Finding(check=NAME, message=text, severity=Severity.WARN)]


def _wrong(process: CandidateProcess, reference: Reference, inputs: list[Any], seed: int, expected: Any) -> bool:
    build(process, reference)
    try:
        return is_wrong(process.run(inputs, seed).value, expected)
    except CandidateFailure as failure:
        return failure.message.startswith("illegal memory access")


def deeper(first: list[Any], second: list[Any]) -> Iterator[list[Any]]:
    """All tensors of as many dimensions as the first input has, then that one alone."""
    if not first or not isinstance(first[0], torch.Tensor) or first[0].dim() < _LEAST:
        return
    others = {id(x): y for x, y in zip(nested.tensors(first), nested.tensors(second), strict=False)}

    def both(tensor: torch.Tensor) -> torch.Tensor:
        other = others.get(id(tensor))
        return torch.stack([tensor, tensor if other is None or other.shape != tensor.shape else other])

    rank = first[0].dim()
    yield nested.mapped(first, lambda tensor: both(tensor) if tensor.dim() == rank else tensor)
    yield [both(first[0]), *first[1:]]


def _much_deeper(first: list[Any], second: list[Any]) -> Iterator[list[Any]]:
    """Both sets of inputs with two more dimensions, which are of different lengths."""
    for inputs, others in zip(deeper(first, second), deeper(second, first), strict=True):
        rank = inputs[0].dim()
        pairs = zip(nested.tensors(inputs), nested.tensors(others), strict=False)
        made = {id(x): torch.stack([x, y, x.flip(0)]) for x, y in pairs if x.dim() == rank and x.shape == y.shape}
        yield nested.mapped(inputs, partial(_instead, others=made))


def _instead(tensor: torch.Tensor, others: dict[int, torch.Tensor]) -> torch.Tensor:
    return others.get(id(tensor), tensor)


def _flatter(first: list[Any], second: list[Any]) -> Iterator[list[Any]]:
    """The first of all such tensors along their first dimension, then of the first input alone."""
    if not first or not isinstance(first[0], torch.Tensor) or first[0].dim() < _LEAST or not len(first[0]):
        return
    rank = first[0].dim()
    yield nested.mapped(first, lambda tensor: tensor[0].clone() if tensor.dim() == rank and len(tensor) else tensor)
    yield [first[0][0].clone(), *first[1:]]


_RANKS = {"one more dimension in front": deeper, "two more dimensions in front": _much_deeper, "a dimension less": _flatter}
