"""Inputs that never vary are found, and changed within what the problem allows."""

from __future__ import annotations

import pytest
import torch

from kernelllm.problems.constant_inputs import constants, others, replaced


def test_what_is_the_same_in_two_draws_is_found() -> None:
    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    inputs = [[torch.randn(4), mask, {"scale": torch.tensor(0.5), "power": 2}, torch.randint(0, 10**6, (4,)), None] for _ in range(2)]
    found = dict(constants(*inputs))
    assert list(found) == [(1,), (2, "scale"), (2, "power")]
    assert found[(2, "power")] == 2


def test_floats_that_are_drawn_anew_are_left_to_variants() -> None:
    table = torch.linspace(0.1, 0.9, 8)
    signs = torch.tensor([1.0, -1.0, 1.0])
    hidden = torch.full((3, 3), float("-inf")).triu(1)
    inputs = [table, signs, hidden]
    assert [path for path, _ in constants(inputs, inputs)] == [(1,), (2,)]


@pytest.mark.parametrize("value", [True, 3, 2.5, 0.0, torch.tensor(1.5), torch.tensor([7])])
def test_single_values_become_others_of_their_kind(value: object) -> None:
    made = others(value, 0)
    assert made
    for other in made:
        assert type(other) is type(value)
        assert bool(other != value)


@pytest.mark.parametrize(
    "value",
    [
        torch.arange(32),
        torch.tensor([5, 1, 1, 9, 3, 3, 0, 2]),
        torch.ones(6, 6, dtype=torch.bool).tril(),
        torch.tensor([[1.0, -1.0, 1.0], [-1.0, -1.0, 1.0]]),
        torch.arange(5).expand(3, 5),
    ],
)
def test_tensors_keep_shape_dtype_layout_and_range(value: torch.Tensor) -> None:
    made = others(value, 1)
    assert any(not torch.equal(other, value) for other in made)
    for other in made:
        assert (other.shape, other.dtype, other.stride()) == (value.shape, value.dtype, value.stride())
        assert set(other.flatten().tolist()) <= set(range(10)) | set(value.flatten().tolist())
        assert value.min() <= other.min()
        assert other.max() <= value.max()


def test_offsets_stay_in_order_between_their_ends() -> None:
    offsets = torch.tensor([0, 3, 3, 9, 20])
    drawn = others(offsets, 2)[0]
    assert (int(drawn[0]), int(drawn[-1])) == (0, 20)
    assert bool((drawn.diff() >= 0).all())


def test_other_values_take_their_places_alone() -> None:
    inputs = [1, (2, [3, {"a": 4}])]
    assert replaced(inputs, {(1, 1, 1, "a"): 5}) == [1, (2, [3, {"a": 5}])]
    assert inputs == [1, (2, [3, {"a": 4}])]
