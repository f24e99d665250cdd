"""Calls one model at many shapes, and after a call that it refused: what it keeps of the calls before may not show."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
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
_SHAPES, _OF_EACH = 24, 12
"""Shapes at which a model is called, and how many of them differ in one dimension."""
_SLOW_MS = 50.0


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
        if first.wall_ms > _SLOW_MS or is_wrong(first.value, usual):
            return []
        for given in _shorter(inputs):
            expected = result(reference, reference.model, given, seed)
            if expected is None:
                continue
            process.load(reference.buffers(), reference.training)
            if is_wrong(process.run(given, seed).value, expected):
                _refuse(process, reference, given, seed, expected)
                return []
    except CandidateFailure as failure:
        if failure.check:
            raise
        return []
    return _after_an_error(process, reference, inputs, seed, usual)


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


def _refuse(process: CandidateProcess, reference: Reference, given: list[Any], seed: int, expected: Any) -> None:
    """Raises CandidateFailure where a new model is right at this shape."""
    build(process, reference)
    if is_wrong(process.run(given, seed).value, expected):
        return  # of the shape itself, not of the calls before
    text = "Silently different after one model was called at many shapes: what it keeps of the first ones does not serve later ones."
    raise CandidateFailure(Status.INCORRECT, text, check=NAME)


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
