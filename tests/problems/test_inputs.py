"""Other kinds of inputs keep what must hold for an input."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelllm.problems.inputs import FAR, KINDS, LARGE, holds_labels, variant, variants


def kinds(*inputs: object, seed: int = 0) -> dict[str, list[object]]:
    """All variants by kind."""
    torch.manual_seed(1)
    return dict(variants(list(inputs), seed))


def test_plain_inputs_come_in_every_kind() -> None:
    x = torch.rand(32, 48)
    made = kinds(x)
    assert tuple(made) == KINDS
    assert 0.9 * LARGE < float(made["large"][0].std()) < 1.1 * LARGE
    assert bool((made["negative"][0] < 0).all())
    assert 0.2 < float((made["zeros"][0] == 0).float().mean()) < 0.5
    assert float(made["normal"][0].min()) < 0
    assert torch.equal(kinds(x)["normal"][0], made["normal"][0])
    assert not torch.equal(kinds(x, seed=1)["normal"][0], made["normal"][0])


def test_labels_masks_and_integers_stay_as_drawn() -> None:
    labels, mask = torch.randint(0, 9, (16,)), torch.rand(16) < 0.5
    signs = torch.randint(0, 2, (16, 1)).float() * 2 - 1
    for made in kinds(torch.randn(16, 4), labels, mask, signs, 3, None).values():
        assert torch.equal(made[1], labels)
        assert torch.equal(made[2], mask)
        assert torch.equal(made[3], signs)
        assert made[4:] == [3, None]
    assert kinds(labels) == {}


def test_probabilities_stay_probabilities() -> None:
    for dim in (1, 0):
        made = kinds(torch.randn(20, 30).softmax(dim))
        assert "normal" in made
        for (p,) in made.values():
            assert torch.allclose(p.sum(dim), torch.ones(p.shape[1 - dim]), atol=1e-4)
            assert bool((p >= 0).all())


def test_triangles_symmetry_order_and_unit_length_stay() -> None:
    x = torch.randn(24, 24)
    for kind in ("normal", "large", "zeros"):
        assert torch.equal(kinds(x.tril())[kind][0].triu(1), torch.zeros(24, 24))
        symmetric = kinds(x + x.T)[kind][0]
        assert torch.equal(symmetric, symmetric.T)
        assert bool((kinds(torch.rand(50).sort().values)[kind][0].diff() >= 0).all())
    unit = kinds(torch.nn.functional.normalize(x, dim=1))["normal"][0]
    assert torch.allclose(unit.norm(dim=1), torch.ones(24), atol=1e-4)


def test_values_kept_away_from_zero_stay_so_and_constants_do_not() -> None:
    for kind, (variance,) in kinds(torch.rand(400) + 0.1).items():
        assert bool((variance > 0).all()), kind
    assert "negative" in kinds(torch.rand(400))
    for constant in (torch.zeros(20, 3), torch.ones(20, 3)):  # an initial state, say: no labels, and no pattern of zeros
        assert float(kinds(constant)["normal"][0].std()) > 0.5


def test_large_tensors_are_known_as_small_ones_are() -> None:
    x = torch.randn(300, 300)
    assert torch.equal(kinds(x.tril())["normal"][0].triu(1), torch.zeros(300, 300))
    assert torch.equal(*(lambda t: (t, t.T))(kinds(x + x.T)["large"][0]))
    assert torch.allclose(kinds(x.softmax(0))["normal"][0].sum(0), torch.ones(300), atol=1e-4)
    assert bool((kinds(x.sort().values)["normal"][0].diff() >= 0).all())
    assert torch.allclose(kinds(torch.nn.functional.normalize(x, dim=1))["normal"][0].norm(dim=1), torch.ones(300), atol=1e-4)
    assert kinds(torch.randint(0, 9, (200, 200)).float()) == {}
    late = torch.randn(70_000)
    late[-1] = float("inf")  # a mask of infinities is nothing to draw anew, wherever it is
    assert kinds(late) == {}
    assert tuple(kinds(x.mT)) == KINDS
    assert kinds(x.mT)["normal"][0].stride() == x.mT.stride()


def test_strides_sharing_and_nesting_are_kept() -> None:
    torch.manual_seed(5)  # another test may have left the very numbers that the variant draws
    x, wide = torch.randn(8, 6), torch.randn(6, 8).T
    made = kinds(x, (x, [wide]), torch.randn(1, 6).expand(8, 6))["normal"]
    assert made[0] is made[1][0]
    assert made[1][1][0].stride() == wide.stride()
    assert made[2].stride() == (0, 1)
    assert not torch.equal(made[0], x)


@settings(max_examples=30)
@given(st.sampled_from([torch.float32, torch.float16, torch.bfloat16, torch.float64]), st.lists(st.integers(1, 5), max_size=3))
def test_shape_and_dtype_are_kept(dtype: torch.dtype, shape: list[int]) -> None:
    x = (torch.rand(shape) + 0.1).to(dtype)
    for (y,) in kinds(x).values():
        assert (y.shape, y.dtype) == (x.shape, x.dtype)


def test_far_values_have_a_spread_that_their_type_can_hold() -> None:
    assert variant([torch.randn(64).bfloat16()], "far", 1) is None
    (x,) = variant([torch.randn(64, 64)], "far", 1) or []
    assert abs(float(x.mean()) - FAR) < 1
    assert 0.9 < float(x.std()) < 1.1


def test_a_few_elements_differ_and_what_must_hold_holds() -> None:
    free, square = torch.randn(64, 96), torch.randn(64, 64)
    for x in (free, free.t(), square.tril(), square + square.mT, free[0].sort().values):
        before = x.clone()
        made = variant([x], "touched", 5)
        assert made is not None
        (y,) = made
        assert torch.equal(x, before)
        assert y.stride() == x.stride()
        assert x.min() <= y.min()
        assert y.max() <= x.max()
        if x.dim() == 2:
            assert 1 <= int((y != x).sum()) <= x.numel() // 50
    (lower,) = variant([square.tril()], "touched", 5) or []
    assert torch.equal(lower, lower.tril())
    (symmetric,) = variant([square + square.mT], "touched", 5) or []
    assert torch.equal(symmetric, symmetric.mT)


def test_heavy_tails_reach_a_million_and_some_rows_have_one_sign() -> None:
    torch.manual_seed(1)
    made = variant([torch.randn(9, 64), torch.randn(9, 64).half()], "heavy", 0)
    assert made is not None
    wide, half = made
    assert 1e3 <= float(wide.abs().min()) < 1e4
    assert 5e5 < float(wide.abs().max()) <= 1e6
    assert {float(row.sign().mean()) for row in wide} >= {-1.0, 1.0}
    assert float(wide.amax(1).min()) < -2e4  # a softmax whose maximum starts at -1000 is wrong there, however long the rows are
    assert bool(torch.isfinite(half).all())


def test_labels_are_told_in_eight_bits_too() -> None:
    numbers = torch.tensor([0.5, 1.0, 2.0, -3.0]).to(torch.float8_e4m3fn)
    assert not holds_labels(numbers)
    assert holds_labels(numbers[1:])


def test_of_whole_numbers_a_few_change_places_within_their_rows() -> None:
    indices, offsets = torch.randint(0, 99, (4, 600)), torch.arange(0, 900, 3)
    made = variant([indices, offsets], "touched", 1)
    assert made is not None
    assert torch.equal(made[1], offsets)
    assert torch.equal(made[0].sort(-1).values, indices.sort(-1).values)
    assert 0 < int((made[0] != indices).sum()) <= 4 * 3


def test_parts_of_long_rows_are_several_times_as_large_as_others() -> None:
    long, short = torch.ones(4, 4096) - 0.5, torch.ones(4, 8) - 0.5
    made = variant([long, short], "uneven", 1)
    assert made is not None
    assert len(made[0].unique()) > 2
    assert bool((made[0] == made[0][:1]).all())
    assert torch.equal(made[1], short)
