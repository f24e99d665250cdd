"""Tells whether two runs of the reference did the same: the same structure, and nearly the same numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelllm.judge.transport import values
from kernelllm.judge.trials.comparison.compare import TIES, tolerance_for
from kernelllm.judge.trials.comparison.error_sums import NEAR, NOISE
from kernelllm.problems import nested
from kernelllm.problems.nested import mapped

MUCH = 0.1
"""An output says something where so much of it is finite."""
_CHUNK = 2**24
"""Elements compared at once."""


def same_structure(left: Any, right: Any) -> bool:
    """Whether two outputs differ in the values of their tensors alone."""
    a: list[torch.Tensor] = []
    b: list[torch.Tensor] = []
    return bool(values.encode(left, a) == values.encode(right, b)) and [t.shape for t in a] == [t.shape for t in b]


def same_shapes(left: Any, right: Any) -> bool:
    """Whether two outputs hold tensors of the same shapes and types, one after the other."""
    a, b = ([(t.shape, t.dtype) for t in nested.tensors(value)] for value in (left, right))
    return bool(a == b)


def agrees(value: Any, exact: Any) -> bool:
    """Whether a float64 run is the same computation: same structure and nearly the same numbers (random masks, for one, differ)."""
    a, b = list(nested.tensors(value)), list(nested.tensors(exact))
    if [t.shape for t in a] != [t.shape for t in b]:
        return False
    for mine, theirs in zip(a, b, strict=True):
        if mine.is_floating_point() != theirs.is_floating_point():
            return False
        if not mine.is_floating_point():
            if int((mine != theirs).sum()) > TIES * mine.numel():
                return False
            continue
        if distance(mine, theirs) > NEAR:
            return False
    return True


def rounding_explains(value: Any, exact: Any, others: Sequence[Any]) -> bool:
    """Whether the same computation, done with other rounding, moves ``value`` about as far as it is from ``exact``."""
    for mine, right, *moved in zip(*(nested.tensors(one) for one in (value, exact, *others)), strict=True):
        if not mine.is_floating_point():
            wrong = int((mine != right).sum())
            if wrong > TIES * mine.numel() and 2 * max((int((one != right).sum()) for one in moved), default=0) < wrong:
                return False
        elif (apart := distance(mine, right)) > NEAR and max((distance(mine, one, right) for one in moved), default=0.0) < apart / 2:
            return False
    return bool(others)


def is_informative(value: Any, exact: Any) -> bool:
    """Whether a run in less precision is near enough to the right numbers to be a measure of what is right."""
    pairs = zip(nested.tensors(value), nested.tensors(exact), strict=True)
    return all(distance(mine, right) <= NOISE for mine, right in pairs if mine.is_floating_point())


def finite(value: Any) -> bool:
    """Whether no tensor of it holds NaN or infinities."""
    return all(bool(nested.finite(t).all()) for t in nested.tensors(value) if t.is_floating_point() or t.is_complex())


def finite_share(value: Any) -> float:
    """The share of an output's numbers that are finite: 0 where it has other tensors than floating-point ones beside NaN or infinities,
    since nobody knows which whole number an infinity gives."""
    if finite(value):
        return 1.0
    tensors = list(nested.tensors(value))
    if not all(t.is_floating_point() for t in tensors):
        return 0.0
    return sum(int(nested.finite(t).sum()) for t in tensors) / max(sum(t.numel() for t in tensors), 1)


def shares_off(value: Any, expected: Any, absolute: Callable[[torch.dtype, float], float]) -> dict[int, float]:
    """The share of each tensor's elements that are off, by position; nothing where outputs have other tensors. ``absolute``: the
    tolerance for a type and an rms."""
    found: dict[int, float] = {}
    for number, (mine, wanted) in enumerate(zip(nested.tensors(value), nested.tensors(expected), strict=False)):
        if (mine.shape, mine.dtype) != (wanted.shape, wanted.dtype):
            return {}
        a, b = nested.computable(mine), nested.computable(wanted)
        off = a != b
        if wanted.is_floating_point() and wanted.itemsize > 1:
            size = float(torch.where(b.isfinite(), b, 0.0).double().square().mean()) ** 0.5
            off = ~torch.isclose(a, b, tolerance_for(wanted.dtype), absolute(wanted.dtype, size), equal_nan=True)
        found[number] = float(off.double().mean()) if wanted.numel() else 0.0
    return found


def cast_like(value: Any, other: Any) -> Any:
    """``other``, which has the same structure, with the dtypes of ``value``."""
    dtypes: list[torch.dtype] = []
    mapped(value, lambda t: dtypes.append(t.dtype))  # a tensor that is there twice counts twice
    rest = iter(dtypes)
    return mapped(other, lambda t: t.to(next(rest)))


def to_float64(value: Any) -> Any:
    """Copies of all tensors, floating-point ones in float64."""
    return mapped(value, lambda t: t.double() if t.is_floating_point() else t.clone())


def distance(left: torch.Tensor, right: torch.Tensor, beside: torch.Tensor | None = None) -> float:
    """How far apart two tensors are, as a share of the norm of ``beside`` (else of ``right``), where both are finite."""
    apart = size = 0.0
    three = map(nested.computable, (left, right, right if beside is None else beside))
    flat = (t.reshape(-1).split(_CHUNK) for t in three)  # in pieces: copies take memory
    for a, b, c in zip(*flat, strict=True):
        usable = torch.isfinite(a) & torch.isfinite(b)
        apart += float(torch.where(usable, a.double() - b, 0.0).square().sum())
        size += float(torch.where(usable, c, 0.0).double().square().sum())
    return math.sqrt(apart / (size + 1e-30))
