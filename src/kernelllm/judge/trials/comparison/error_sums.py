"""Sums errors over an output's elements: how far a candidate and eager are from the right values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

EAGER_FACTOR = 2.0
"""A candidate may err by so many times eager's own error (largest and rms)."""
TAIL = 1e-5
"""Share of elements that may err by twice as much: the largest of many errors differs from run to run."""
FEW = 256
"""With fewer elements than this, eager's error may be small by luck, and a candidate's of one sign."""
NEAR = 0.05
"""A float64 run that is apart from eager's by less than this share of its norm is nearly the same."""
NOISE = 0.25
"""Eager's output says nothing itself where it is off by more than this share."""
_ZERO = 1e6
"""Times the output that eager is off by where the right output is zero, such as the gradient of a key's bias, and float64 rounds too."""
_CHUNK = 2**26


@dataclass
class ErrorSums:
    """Sums over all elements where reference and candidate are finite."""

    elements: int = 0
    bad_nonfinite: int = 0
    first_nonfinite: int = -1
    max_error: float = 0.0
    at: int = -1
    max_margin: float = 0.0
    worst: int = -1
    error: float = 0.0
    """At the worst element, where the error is largest beside the tolerance."""
    allowed: float = 0.0
    """By the tolerance, at that element."""
    beyond: int = 0
    """Elements beyond the tolerance."""
    beyond_eager: int = 0
    """Elements among them whose error is beyond eager's too."""
    far_beyond_eager: int = 0
    """Elements among these whose error is twice as much."""
    as_far: int = 0
    """Elements at which eager, or what is as right, is off by half of the tolerance or more."""
    squares: float = 0.0
    target_squares: float = 0.0
    eager_squares: float = 0.0
    eager_max: float = 0.0
    along: float = 0.0
    """The error times the output, summed up: far from zero where the error is a share of the output itself."""
    eager_along: float = 0.0
    tolerance: float = 0.0
    only_finite: bool = False
    """Whether a candidate may give anything where the reference gives NaN or infinities."""
    far: bool = False
    """Whether eager is further from float64 than :data:`NEAR`, by rounding alone."""

    @property
    def systematic(self) -> bool:
        """Whether the output is too large or too small as a whole, which the rounding of many elements does not make it."""
        by_chance = math.sqrt(max(self.eager_squares, self.squares / 4) * self.target_squares) / (2 if self.far else 1)
        most = max(EAGER_FACTOR * abs(self.eager_along), by_chance)
        return self.elements >= FEW and abs(self.along) > most

    @property
    def within_eager(self) -> bool:
        """Whether no element is further off than eager's may be, and no more of them are than those of eager by chance: a decision that
        falls otherwise for one row says nothing of all others."""
        few = self.beyond <= EAGER_FACTOR * self.as_far + FEW / 16
        return few and not self.far_beyond_eager and self.beyond_eager <= TAIL * self.elements

    def bound_far_error(self) -> None:
        """Eager's error counts by half of itself, and by no less than :data:`NEAR`: who is as exact as eager is right, and nobody else.

        Where the output is zero but for rounding, no share of it says anything; eager's error counts as it is.
        """
        share = math.sqrt(self.eager_squares / max(self.target_squares, 1e-300))
        if NEAR < share < _ZERO:
            self.far = True
            scale = (NEAR if share > NOISE else max(NEAR, share / EAGER_FACTOR)) / share
            self.eager_squares *= scale**2
            self.eager_max *= scale
            self.eager_along *= scale

    def rms(self, squares: float) -> float:
        return math.sqrt(squares / max(self.elements, 1))


def error_sums(
    mine: torch.Tensor, reference: torch.Tensor, exact: Any, equally_right: tuple[Any, ...], tolerance: float,
    absolute: Callable[[float], float], far: bool = False, only_finite: bool = False,
) -> ErrorSums:  # fmt: skip
    """``absolute``: the absolute tolerance for an output of a given rms; ``far``, ``only_finite``: see :class:`ErrorSums`."""
    out = ErrorSums(tolerance=tolerance, only_finite=only_finite)
    flat = [None if t is None else t.reshape(-1) for t in (mine, reference, exact, *equally_right)]

    def chunks() -> Iterator[tuple[int, list[Any]]]:
        for start in range(0, reference.numel(), _CHUNK):
            yield start, [None if t is None else t[start : start + _CHUNK].double() for t in flat]

    for _, (_c, r, x, *others) in chunks():
        target = r if x is None else x
        finite = torch.isfinite(target) & torch.isfinite(r)
        safe = torch.where(finite, target, 0.0)
        out.eager_along += float((torch.where(finite, r - target, 0.0) * safe).sum())
        out.target_squares += float((safe * safe).sum())
        if x is not None or others:
            own = torch.where(finite, (r - target).abs(), 0.0)
            for t in others:
                own = torch.maximum(own, torch.where(finite & torch.isfinite(t), (t - target).abs(), 0.0))
            out.eager_max = max(out.eager_max, float(own.max()))
            out.eager_squares += float((own * own).sum())
        out.elements += int(finite.sum())
    if far:
        out.bound_far_error()
    floor = absolute(min(out.rms(out.target_squares), 1e30))
    for start, (c, r, x, *others) in chunks():
        _add(out, start, c, r, r if x is None else x, floor, others)
    return out


def _add(
    out: ErrorSums, start: int, c: torch.Tensor, r: torch.Tensor, target: torch.Tensor, floor: float, others: list[torch.Tensor]
) -> None:
    finite = torch.isfinite(target) & torch.isfinite(r)
    # eager overflows, and the number is there: it may be had
    better = torch.isfinite(target) & ~torch.isfinite(r) & torch.isfinite(c) & (not out.only_finite)
    same = (torch.isnan(r) & torch.isnan(c)) | (r == c)
    bad = torch.where(finite, ~torch.isfinite(c), ~same & ~torch.isfinite(r) & ~better & (not out.only_finite))
    count = int(bad.sum())
    if count and out.first_nonfinite < 0:
        out.first_nonfinite = start + int(bad.to(torch.uint8).argmax())
    out.bad_nonfinite += count
    both = (finite & torch.isfinite(c)) | better
    error = torch.where(both, (c - target).abs(), 0.0)
    allowed = torch.where(both, floor + out.tolerance * target.abs(), 1.0)
    margin = error / allowed
    largest = int(error.argmax())
    if float(error[largest]) > out.max_error or out.at < 0:
        out.max_error, out.at = float(error[largest]), start + largest
    steepest = int(margin.argmax())
    if float(margin[steepest]) > out.max_margin or out.worst < 0:
        out.max_margin, out.worst = float(margin[steepest]), start + steepest
        out.error, out.allowed = float(error[steepest]), float(allowed[steepest])
    beyond = int((margin > 1).sum())
    if beyond:
        own = sum(((t - target).abs() > allowed / EAGER_FACTOR for t in (r, *others)), torch.zeros_like(error, dtype=torch.bool))
        out.as_far += int((own > 0).sum())
    out.beyond += beyond
    out.beyond_eager += int(((margin > 1) & (error > EAGER_FACTOR * out.eager_max)).sum())
    out.far_beyond_eager += int(((margin > 1) & (error > 2 * EAGER_FACTOR * out.eager_max)).sum())
    out.squares += float((error * error).sum())
    out.along += float((torch.where(both, c - target, 0.0) * torch.where(both, target, 0.0)).sum())
