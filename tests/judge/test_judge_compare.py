"""The comparison alone."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelllm.judge.judge_settings import KERNELBENCH, STRICT
from kernelllm.judge.trials.comparison.compare import Expected, Rules, compare
from kernelllm.judge.trials.reference_runs.reference_run import ReferenceRun

GENERATOR = torch.Generator().manual_seed(1)


def _exact(reference: torch.Tensor, noise: float = 1e-7) -> Expected:
    exact = reference.double() + noise * torch.randn(reference.shape, generator=GENERATOR).double() * reference.double().abs()
    return Expected(reference, exact, True)


@given(st.lists(st.integers(0, 5), min_size=0, max_size=3), st.sampled_from([torch.float32, torch.float16, torch.int64, torch.bool]))
@settings(max_examples=40)
def test_a_value_equals_itself(shape: list[int], dtype: torch.dtype) -> None:
    value = (torch.randn(shape, generator=GENERATOR) * 5).to(dtype)
    result = compare({"a": [value, None, 3, "x", 2.5]}, Expected({"a": [value.clone(), None, 3, "x", 2.5]}), Rules())
    assert result.ok
    assert not result.max_error


@pytest.mark.parametrize("profile", [STRICT, KERNELBENCH])
def test_one_element_off_is_found_and_named(profile: str) -> None:
    reference = torch.ones(7, 9)
    mine = reference.clone()
    mine[3, 4] = 1.001
    result = compare(mine, _exact(reference), Rules(profile))
    assert not result.ok
    assert "(3, 4)" in result.message
    assert "1 of 63" in result.message
    assert result.max_error == pytest.approx(1e-3, rel=1e-2)
    assert not result.precision


@pytest.mark.parametrize(
    ("mine", "reference", "words"),
    [
        (torch.ones(3), torch.ones(3, 1), "shape"),
        (torch.ones(3).half(), torch.ones(3), "dtype"),
        ((torch.ones(3),), torch.ones(3), "a tuple"),
        (torch.ones(3), (torch.ones(3), torch.ones(3)), "sequence of 2"),
        ({"b": 1}, {"a": 1}, "keys"),
        (None, torch.ones(1), "None"),
        (True, 1, "True"),
        (torch.tensor(1.0), 1.0, "a tensor"),
    ],
)  # fmt: skip
def test_structures_that_differ(mine: object, reference: object, words: str) -> None:
    result = compare(mine, Expected(reference), Rules())
    assert not result.ok
    assert words in result.message


def test_nan_and_infinity_only_where_the_reference_has_them() -> None:
    reference = torch.tensor([1.0, math.nan, math.inf, -math.inf])
    assert compare(reference.clone(), Expected(reference), Rules()).ok
    for position, value in ((0, math.nan), (0, math.inf), (1, 0.0), (2, -math.inf), (2, 5.0)):
        mine = reference.clone()
        mine[position] = value
        assert not compare(mine, Expected(reference), Rules()).ok


def test_precision_is_judged_against_eagers_own_error() -> None:
    exact = torch.randn(64, 64, generator=GENERATOR).double()
    eager = (exact + 1e-7 * torch.randn(64, 64, generator=GENERATOR).double()).float()
    coarse = (exact + 2e-5 * torch.randn(64, 64, generator=GENERATOR).double()).float()
    expected = Expected(eager, exact, True)
    assert compare(exact.float(), expected, Rules()).ok
    refused = compare(coarse, expected, Rules())
    assert not refused.ok
    assert refused.precision
    assert compare(coarse, expected, Rules(KERNELBENCH)).ok
    assert compare(coarse, expected, Rules(precise=False)).ok


def test_what_eager_gets_wrong_too_is_no_error() -> None:
    exact = torch.randn(256, generator=GENERATOR).double() * 100
    eager = (exact + 0.05 * torch.randn(256, generator=GENERATOR).double()).float()
    mine = (exact + 0.04 * torch.randn(256, generator=GENERATOR).double()).float()
    assert compare(mine, Expected(eager, exact, True), Rules()).ok
    assert not compare(mine, Expected(eager), Rules()).ok
    worse = (exact + 0.5 * torch.randn(256, generator=GENERATOR).double()).float()
    assert not compare(worse, Expected(eager, exact, True), Rules()).ok


def test_what_rounding_alone_may_do_is_no_error() -> None:
    exact = torch.randn(256, generator=GENERATOR).double() * 100
    eager = (exact + 0.01 * torch.randn(256, generator=GENERATOR).double()).float()
    mine = eager.clone()
    mine[7] += 10.0  # one element in a thousand is that sensitive
    shaken = exact.clone()
    shaken[9] += 8.0
    assert not compare(mine, Expected(eager, exact, True), Rules()).ok
    result = compare(mine, Expected(eager, exact, True, (shaken,)), Rules())
    assert result.ok
    assert result.within_eager_error
    assert not compare(mine + 1.0, Expected(eager, exact, True, (shaken,)), Rules()).ok  # everywhere is another matter


def test_integers_are_exact() -> None:
    reference = torch.arange(10)
    mine = reference.clone()
    mine[7] += 1
    result = compare(mine, Expected(reference), Rules())
    assert not result.ok
    assert "1 of 10 elements differ" in result.message


def test_large_outputs_are_judged_as_small_ones_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a size a quick look comes first: it must never let pass what the close look would not."""
    large = 2**20
    monkeypatch.setattr("kernelllm.judge.trials.comparison.compare._LARGE", large)
    reference = torch.randn(large + 3, generator=torch.Generator().manual_seed(1))
    expected = Expected(reference)
    assert compare(reference + 1e-6, expected, Rules()).ok
    for place, value in ((0, float("nan")), (large + 2, float("inf")), (77, 1e9), (5, float(reference[5]) + 1e-2)):
        wrong = reference.clone()
        wrong[place] = value
        found = compare(wrong, expected, Rules())
        assert not found.ok
        assert f"({place},)" in found.message


def test_whole_numbers_that_rounding_decides() -> None:
    reference = torch.arange(1000)
    near, mine = reference.clone(), reference.clone()
    near[[3, 500]] = 7
    mine[[3, 500, 20, 30]] = 0  # these, two others, and no more than twice as many
    assert not compare(mine, Expected(reference), Rules()).ok
    assert not compare(mine, Expected(reference, reference.clone(), True), Rules()).ok
    result = compare(mine, Expected(reference, reference.clone(), True, (near,)), Rules())
    assert result.ok
    assert result.within_eager_error
    assert not compare(mine, Expected(reference, reference.clone(), True, (near,)), Rules(KERNELBENCH)).ok
    mine = reference.clone()
    mine[[20, 30, 40]] = 0  # where no try differs
    assert not compare(mine, Expected(reference, reference.clone(), True, (near,)), Rules()).ok
    everything = reference + 1  # exact ties all over: which one is taken is no matter of rounding
    mine[60:] = 0
    assert not compare(mine, Expected(reference, reference.clone(), True, (everything,)), Rules()).ok


def test_what_was_never_written_is_called_that_and_other_nan_is_not() -> None:
    right = torch.randn(40)
    unwritten, computed = right.clone(), right.clone()
    unwritten[30:].view(torch.int32).fill_(-1)
    computed[30:] = torch.tensor(float("inf")) - torch.tensor(float("inf"))
    assert "10 of 40 elements were never written" in compare(unwritten, Expected(right), Rules()).message
    assert "10 of 40 elements are NaN or infinite" in compare(computed, Expected(right), Rules()).message


def test_a_chain_of_codes_that_another_run_under_roundings_gives_as_well_is_right() -> None:
    codes, rest = torch.randint(0, 900, (3, 4, 12)), torch.randn(3, 4, 12)
    decided = {"codes": codes.clone(), "rest": rest.clone()}
    decided["codes"][1, 1:, 5] += 7  # one neighbour as near as another, and all that follows from it
    decided["rest"][1, 1:, 5] += 0.5
    wrong = {name: tensor.clone() for name, tensor in decided.items()}
    wrong["codes"][2, 0, 3] += 1
    many = {"codes": codes + 1, "rest": rest}

    def verdict(value: object, *others: object) -> bool:
        theirs = {"codes": codes, "rest": rest}
        run = ReferenceRun(Expected(theirs, {"codes": codes, "rest": rest.double()}, True), finite=True)
        run.decided_otherwise = lambda: iter(others)
        return run.compared(value, Rules()).ok

    assert verdict(decided, {"codes": codes, "rest": rest.double()}, {**decided, "rest": decided["rest"].double()})
    assert not verdict(decided)
    assert not verdict(wrong, {**decided, "rest": decided["rest"].double()})
    assert not verdict(many, {**many, "rest": rest.double()})


@pytest.mark.parametrize("clean", [1, 0])
def test_all_tensors_but_one_may_be_rounding_alone(clean: int) -> None:
    generator = torch.Generator().manual_seed(4)
    exact = [torch.randn(64, generator=generator).double() * 1e-3 for _ in range(6)]

    def rounded(size: float = 1e-2) -> list[torch.Tensor]:
        noise = [(torch.rand(64, generator=generator).double() * 2 - 1) * size for _ in range(6)]
        return [one if number < clean else one + off for number, (one, off) in enumerate(zip(exact, noise, strict=True))]

    eager = [one.float() for one in rounded(2e-3)]
    run = ReferenceRun(Expected(eager, exact, True), finite=True)
    run.all_roundings = lambda: iter([rounded() for _ in range(18)])
    run.wide_roundings = lambda: iter([rounded(8e-2) for _ in range(18)])
    assert run.compared([one.float() for one in rounded()], Rules()).ok is bool(clean)
    assert not run.compared([one.float() for one in rounded(4e-2)], Rules()).ok, "further off than the reference"


@pytest.mark.parametrize(("made", "wrong"), [("count", 41), ("mean", 0.25), ("none", ())])
def test_no_rounding_excuses_what_is_no_tensor(made: str, wrong: object) -> None:
    value = torch.randn(40, 24, generator=GENERATOR)
    right = {"rows": value, "count": 40, "mean": 0.5, "none": None}
    roundings = [{**right, "rows": value.double() + one * 1e-9} for one in range(8)]
    run = ReferenceRun(Expected(right, {**right, "rows": value.double()}, True), finite=True)
    run.all_roundings = run.decided_otherwise = lambda: iter(roundings)
    run.rotated_ties = lambda: iter([([], right)] * 2)
    for rules in (Rules(), Rules(scaled=True, precise=False)):
        assert run.compared(dict(right), rules).ok
        assert not run.compared({**right, made: wrong}, rules).ok


def test_a_few_of_very_many_elements_may_be_twice_as_far_off_as_eager_allows() -> None:
    """The largest of so many errors differs from run to run."""
    exact = torch.randn(400_000, generator=GENERATOR).double()
    eager = (exact + 1e-3 * (2 * torch.rand(len(exact), generator=GENERATOR) - 1).double()).float()
    allowed, mine = 2e-3, (exact + 1e-3 * torch.rand(len(exact), generator=GENERATOR).double() * exact.sign()).float()
    for count, off, ok in ((3, 1.5, True), (3, 2.5, False), (9, 1.5, False)):
        wrong = mine.clone()
        wrong[:count] = (exact[:count] + off * allowed).float()
        assert compare(wrong, Expected(eager, exact, True), Rules(precise=False)).ok == ok, (count, off)
