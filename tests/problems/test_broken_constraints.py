"""Inputs without a constraint that all have which a problem draws."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kernelllm.problems.broken_constraints import (
    ALL,
    BELOW_ZERO,
    ENDS,
    FRACTIONS,
    HUGE,
    LARGE,
    LENGTHS,
    LOWEST,
    MASKED,
    NARROW,
    NONE,
    SENTINEL,
    SKIPPING,
    TWICE,
    UNSORTED,
    WHERE,
    WIDE,
    sentinels,
    without,
)

SOURCE = "F.cross_entropy(x, t, ignore_index=-100) * (t != -7) * x.sum(-1)"
DRAWS: dict[str, Callable[[], torch.Tensor]] = {
    UNSORTED: lambda: torch.rand(8, 32).sort(-1).values,
    LENGTHS: lambda: torch.nn.functional.normalize(torch.randn(8, 32), dim=-1),
    FRACTIONS: lambda: torch.randint(0, 9, (8, 32)).float(),
    TWICE: lambda: torch.randperm(32),
    LARGE: lambda: torch.randint(0, 9, (8, 32)),
    WIDE: lambda: torch.randint(0, 9, (8, 32)),
    SENTINEL: lambda: torch.randint(0, 9, (8, 32)),
    SKIPPING: lambda: torch.randint(1, 9, (32,)).cumsum(0),
    BELOW_ZERO: lambda: torch.randint(0, 9, (8, 32)),
    MASKED: lambda: torch.randn(8, 24),
    ALL: lambda: torch.rand(8, 32) < 0.5,
    HUGE: lambda: torch.randn(8, 24),
    LOWEST: lambda: torch.randn(8, 24),
    NARROW: lambda: torch.randint(0, 9, (8, 32)),
    ENDS: lambda: torch.randint(0, 100, (8, 32), dtype=torch.uint8),
    NONE: lambda: (torch.rand(8, 32) < 0.5).float(),
}


@pytest.mark.parametrize("kind", WHERE)
def test_what_has_a_constraint_is_drawn_without_it(kind: str) -> None:
    first, second, free = DRAWS[kind](), DRAWS[kind](), torch.randn(8, 32)
    free = free.triu() if kind in (MASKED, HUGE, LOWEST) else free
    made = without([first, free], [second, free + 1], kind, 3, SOURCE)
    assert made is not None
    assert torch.equal(made[0], first) is (kind == NARROW)
    assert made[0].dtype is (torch.int32 if kind == NARROW else first.dtype)
    assert torch.equal(made[1], free)
    assert without([first], [first], kind, 3, SOURCE) is None  # what never varies is none of this
    assert without([free], [free + 1], kind, 3, SOURCE) is None


def test_masks_signs_and_offsets_stay() -> None:
    offsets, mask = torch.arange(32), torch.randint(0, 2, (8, 32)).float()
    for kind in set(WHERE) - {SKIPPING, ALL, NONE, NARROW}:
        assert without([offsets, mask], [offsets + 1, 1 - mask], kind, 3, SOURCE) is None


def test_offsets_that_skip_some_cover_the_same() -> None:
    offsets = torch.arange(0, 128, 4)
    (made,) = without([offsets], [offsets + 1], SKIPPING, 3, SOURCE) or [offsets]
    assert made[0] == 0
    assert made[-1] == offsets[-1]
    assert bool((made.diff() == 0).any())
    assert bool((made.diff() >= 0).all())


def test_numbers_with_a_meaning_are_those_compared_with_or_ignored() -> None:
    assert set(sentinels(SOURCE)) == {-100, -7}
