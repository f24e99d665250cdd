"""Inputs at the bounds of what a problem draws; what other values would not be inputs of it stays."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelllm.problems.bounds import HIGHEST, LOWEST, at_bounds


def drawn(make: Any, kind: str, **options: bool) -> torch.Tensor | None:
    torch.manual_seed(0)
    first, second = [make()], [make()]
    made = at_bounds(first, second, kind, 3, **options)
    assert made is None or made[0].dtype == first[0].dtype
    return None if made is None else made[0]


def test_whole_numbers_are_all_the_lowest_or_the_highest() -> None:
    assert drawn(lambda: torch.randint(3, 9, (40, 5)), LOWEST).unique().tolist() == [3]  # type: ignore[union-attr]
    assert drawn(lambda: torch.randint(3, 9, (40, 5)), HIGHEST).unique().tolist() == [8]  # type: ignore[union-attr]


@pytest.mark.parametrize("make", [
    lambda: torch.randperm(40), lambda: torch.rand(6, 9).argsort(-1)[:, :3], lambda: torch.randint(0, 90, (7,)).sort().values,
    lambda: torch.arange(12), lambda: torch.randn(9, 4), lambda: torch.rand(9, 4).softmax(-1), lambda: torch.rand(30).round(),
], ids=["permutation", "chosen", "offsets", "constant", "any numbers", "probabilities", "labels"])  # fmt: skip
@pytest.mark.parametrize("kind", [LOWEST, HIGHEST])
def test_what_would_not_be_an_input_of_the_problem_stays(make: Any, kind: str) -> None:
    assert drawn(make, kind) is None


def test_whole_numbers_stay_where_the_last_of_several_writes_counts() -> None:
    assert drawn(lambda: torch.randint(3, 9, (40, 5)), LOWEST, whole_numbers=False) is None


def test_masks_begin_or_end_with_false_and_some_of_each_row_is_seen() -> None:
    begins = drawn(lambda: torch.rand(6, 50) > 0.3, LOWEST)
    ends = drawn(lambda: torch.rand(6, 50) > 0.3, HIGHEST)
    assert begins is not None
    assert ends is not None
    for row in (*begins.tolist(), *ends.flip(-1).tolist()):
        assert row == sorted(row)
        assert True in row
        assert row.count(False) >= 25


@pytest.mark.parametrize(("make", "low", "high"), [
    (lambda: torch.rand(500), 0.0, 1.0), (lambda: torch.rand(500) * 1.9 - 0.95, -1.0, 1.0), (lambda: -torch.rand(500), -1.0, 0.0),
])  # fmt: skip
def test_numbers_between_minus_one_and_one_reach_the_bounds(make: Any, low: float, high: float) -> None:
    for kind, bound in ((LOWEST, low), (HIGHEST, high)):
        made = drawn(make, kind)
        assert made is not None
        assert 100 < int((made == bound).sum()) < 250


def test_the_same_tensor_twice_stays_so_and_numbers_wait_for_masks() -> None:
    ids, mask, x = torch.randint(0, 5, (30,)), torch.rand(4, 20) > 0.5, torch.rand(8)
    other = [torch.randint(0, 5, (30,)), torch.rand(4, 20) > 0.5, torch.rand(8)]
    made = at_bounds([ids, mask, {"again": ids}, x], [other[0], other[1], {"again": other[0]}, other[2]], LOWEST, 0)
    assert made is not None
    assert made[2]["again"] is made[0]
    assert made[3] is x
