"""Whether two runs of the reference did the same: the same structure, and nearly the same numbers."""

from __future__ import annotations

from typing import Any

import torch

from kernelllm.judge.transport import values
from kernelllm.judge.trials.compare import TIES
from kernelllm.problems import nested
from kernelllm.problems.nested import mapped

_CHUNK = 2**24
"""Elements compared at once."""


def same_structure(left: Any, right: Any) -> bool:
    """Whether two outputs differ in the values of their tensors alone."""
    a: list[torch.Tensor] = []
    b: list[torch.Tensor] = []
    return bool(values.encode(left, a) == values.encode(right, b)) and [t.shape for t in a] == [t.shape for t in b]


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
        if not _near(mine.reshape(-1), theirs.reshape(-1)):
            return False
    return True


def in_dtypes_of(value: Any, other: Any) -> Any:
    """``other``, which has the same structure, with the dtypes of ``value``."""
    dtypes: list[torch.dtype] = []
    mapped(value, lambda t: dtypes.append(t.dtype))  # a tensor that is there twice counts twice
    rest = iter(dtypes)
    return mapped(other, lambda t: t.to(next(rest)))


def in_double(value: Any) -> Any:
    return mapped(value, lambda t: t.double() if t.is_floating_point() else t.clone())


def _near(mine: torch.Tensor, exact: torch.Tensor) -> bool:
    """Whether flat ``mine`` is within 5 % of ``exact`` by norm, where both are finite; in pieces, for the copies take memory."""
    difference = size = 0.0
    for left, right in zip(mine.split(_CHUNK), exact.split(_CHUNK), strict=True):
        usable = torch.isfinite(left) & torch.isfinite(right)
        difference += float(torch.where(usable, left.double() - right, 0.0).square().sum())
        size += float(torch.where(usable, right, 0.0).square().sum())
    return difference <= 0.05**2 * size + 1e-30
