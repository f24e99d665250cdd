"""Calls one model at many shapes, and after a call that it refused: what it keeps of the calls before may not show."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain, islice
from typing import Any

import torch

from kernelllm.core.types import Finding, Severity, Status
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.trials.first_runs import build
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.judge.trials.reference_runs.reference_results import is_wrong, result
from kernelllm.problems.nested import mapped

NAME = "silently_different"
_LEAST, _PARTS = 4, 12
"""The shortest dimension of which parts are taken, and into how many equal ones."""
_SHAPES, _OF_EACH = 24, 12
"""Shapes at which a model is called, and how many of them differ in one dimension."""
_SLOW_MS, _MOST_MS = 50.0, 2000.0
"""A call that takes longer is made at no shapes in a row; calls of a kind take so long together."""


def try_many_shapes(process: CandidateProcess, reference: Reference, seed: int) -> list[Finding]:
    """A warning where a result is another one after an error. Raises CandidateFailure where one model is wrong after many shapes."""
    if reference.draws or reference.heavy or process.device != "cpu":  # a GPU may compile for each shape anew
        return []
    inputs = reference.inputs(seed)
    usual = result(reference, reference.model, inputs, seed)
    if usual is None:
        return []
    build(process, reference)
    try:
        first = process.run(inputs, seed)
    except CandidateFailure:
        return []
    if is_wrong(first.value, usual):
        return []
    shorter = _shorter(inputs) if first.wall_ms <= _SLOW_MS else iter(())
    for given in chain(islice(_after_another(inputs), int(_MOST_MS / max(first.wall_ms, 1.0))), shorter):
        expected = result(reference, reference.model, given, seed)
        if expected is not None and not _goes_on(process, reference, given, seed, expected):
            return []
    return _after_an_error(process, reference, inputs, seed, usual)


def _goes_on(process: CandidateProcess, reference: Reference, given: list[Any], seed: int, expected: Any) -> bool:
    """Calls the model at one more shape. False where it is no model any more. Raises CandidateFailure where what it keeps decides."""
    try:
        process.load(reference.buffers(), reference.training)
        wrong = is_wrong(process.run(given, seed).value, expected)
    except CandidateFailure as failure:
        wrong = failure.message.startswith("illegal memory access")
        if not wrong:  # whoever calls it sees that
            return not process.lost
    if not wrong:
        return True
    try:
        build(process, reference)
        wrong = is_wrong(process.run(given, seed).value, expected)
    except CandidateFailure:
        return False
    if wrong:
        return True  # of the shape itself, not of the calls before
    text = "Silently different after one model was called at other shapes: what it keeps of them does not serve later ones."
    raise CandidateFailure(Status.INCORRECT, text, check=NAME)


def _after_another(inputs: list[Any]) -> Iterator[list[Any]]:
    """Parts of the inputs, each of which may follow the one before: half of a length and the whole, the same number of elements in another
    shape, a little more and less."""
    first = next((value for value in inputs if isinstance(value, torch.Tensor)), None)
    shape = () if first is None else first.shape
    longest = {dim: length - length % (_PARTS if length >= _PARTS else 2) for dim, length in enumerate(shape) if length >= _LEAST}

    def of(lengths: dict[int, int]) -> list[Any]:
        made = inputs
        for dim, left in lengths.items():
            made = mapped(made, partial(_cut, dim=dim, length=shape[dim], left=left))
        return made

    for dim, most in longest.items():
        yield from (of({dim: left}) for left in (most, most // 2, most))
    dims = list(longest)[-2:]
    if len(dims) > 1 and (least := min(longest.values())):
        for half in (0, 1, 0):
            yield of({dim: least // 2 if number == half else least for number, dim in enumerate(dims)})
    for dim, most in longest.items():
        yield from (of({dim: left}) for left in (most - 1, most, most // 3, most, most // 4, most, 1, most))


def _shorter(inputs: list[Any]) -> Iterator[list[Any]]:
    """All tensors that are as long as the first one along one of its dimensions, up to some element of it."""
    first = next((value for value in inputs if isinstance(value, torch.Tensor)), None)
    made = 0
    for dim, length in enumerate(first.shape) if first is not None else ():
        for left in range(length - 1, max(length - 1 - _OF_EACH, 1), -1):
            if made == _SHAPES:
                return
            made += 1
            yield mapped(inputs, partial(_cut, dim=dim, length=length, left=left))


def _cut(tensor: torch.Tensor, dim: int, length: int, left: int) -> torch.Tensor:
    along = dim < tensor.dim() and tensor.shape[dim] == length
    return tensor.narrow(dim, 0, left).clone() if along else tensor


def _after_an_error(process: CandidateProcess, reference: Reference, inputs: list[Any], seed: int, usual: Any) -> list[Finding]:
    refused = [value[None, None].clone() if isinstance(value, torch.Tensor) else value for value in inputs]
    try:
        process.run(refused, seed)
        return []
    except CandidateFailure:
        if process.lost:
            return []
    try:
        process.load(reference.buffers(), reference.training)
        value = process.run(inputs, seed).value
    except CandidateFailure:
        return []
    text = "After a call that raised an error the result is another one than before, and nothing is said."
    return [Finding(check=NAME, message=text, severity=Severity.WARN)] if is_wrong(value, usual) else []
