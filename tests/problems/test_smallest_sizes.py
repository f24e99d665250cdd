"""Sets of sizes in which one size is 1 or 0, or lies between others."""

from __future__ import annotations

import pytest

from kernelllm.core.types import Problem
from kernelllm.problems.smallest_sizes import sets_between, sets_of_counts, sets_outside, sets_with

_SOURCE = """
import torch
import torch.nn as nn

ROWS = 16
LEFT = 32
RIGHT = 32
LAYERS = 2


class Model(nn.Module):
    def forward(self, x, y):
        return {forward}


def get_inputs():
    return [torch.randn(ROWS, LEFT), torch.randn(ROWS, RIGHT)]


def get_init_inputs():
    return []
"""
_SHRUNK = [{}, {"ROWS": 5, "LEFT": 23, "RIGHT": 23}]


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        ("x + y", [{"ROWS": 1}, {"LEFT": 1, "RIGHT": 1}]),  # alone, one of them would be broadcast to the other
        ("torch.cat([x, y], 1)", [{"ROWS": 1}, {"LEFT": 1}, {"RIGHT": 1}]),
        ("nn.functional.batch_norm(x + y, None, None, training=True)", [{"LEFT": 1, "RIGHT": 1}]),  # no statistics of one row
    ],
)
def test_each_size_in_turn_where_the_problem_works_so(forward: str, expected: list[dict[str, int]]) -> None:
    assert sets_with(Problem(name="p", source=_SOURCE.format(forward=forward)), _SHRUNK, 1) == expected


def test_sizes_that_never_change_are_not_made_one() -> None:
    assert sets_with(Problem(name="p", source=_SOURCE.format(forward="x + y")), [{}], 1) == []


_TABLE = """
import torch
import torch.nn as nn

ROWS, WIDTH = 16, 32


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("table", torch.arange(0.0, width, 2))

    def forward(self, x):
        return x + self.table


def get_inputs():
    return [torch.randn(ROWS, 16)]


def get_init_inputs():
    return [WIDTH]
"""


def test_a_size_that_rounds_to_the_same_is_not_free() -> None:
    """A table of every second number is as long at 31 as at 32: at 1 alone it would be broadcast."""
    assert sets_with(Problem(name="p", source=_TABLE), [{}, {"WIDTH": 31, "ROWS": 5}], 1) == [{"ROWS": 1}]


def test_sizes_at_which_the_reference_takes_empty_tensors() -> None:
    largest = _SOURCE.format(forward="(x + y).amax(dim=1)")  # the largest of none is an error
    assert sets_with(Problem(name="p", source=largest), _SHRUNK, 0) == [{"ROWS": 0}]
    product = _SOURCE.format(forward="x.T @ y")
    assert sets_with(Problem(name="p", source=product), _SHRUNK, 0) == [{"ROWS": 0}, {"LEFT": 0}, {"RIGHT": 0}]
    turned = _SOURCE.format(forward="x @ y.T").replace("(ROWS, RIGHT)", "(3, RIGHT)")  # of what they share nothing is left
    assert sets_with(Problem(name="p", source=turned), _SHRUNK, 0) == [{"ROWS": 0}]


def test_a_size_between_numbers_of_which_none_was_tried() -> None:
    source = _SOURCE.replace("ROWS = 16", "ROWS = 4096").format(forward="torch.cat([x, y], 1)")
    problem, tried = Problem(name="p", source=source), [{"ROWS": 64}, {"ROWS": 33, "LEFT": 23}]
    assert sets_between(problem, tried, (1024, 2048), 2) == [{"ROWS": 1537}]
    assert sets_between(problem, [*tried, {"ROWS": 1500}], (1024, 2048), 2) == []
    assert sets_between(problem, tried, (1024,), 2) == []  # both sides of it are tried
    assert sets_outside(problem, tried, (20, 6000), 4) == [
        {"ROWS": 7501}, {"ROWS": 64, "LEFT": 7501}, {"ROWS": 19}, {"ROWS": 64, "LEFT": 19}
    ]  # fmt: skip


def test_counts_change_beside_sizes_that_a_file_has_fixed() -> None:
    problem = Problem(name="case", source=_SOURCE.format(forward="x + y").replace("ROWS = 16", "ROWS = 8"))
    tried = [{"LEFT": 23, "RIGHT": 23}]
    assert sets_of_counts(problem, tried, frozenset(), 1) == [{"ROWS": 6, "LEFT": 23, "RIGHT": 23}]
    assert sets_of_counts(problem, tried, frozenset({"ROWS"}), 1) == []
    assert sets_of_counts(problem, tried, frozenset({"LEFT", "RIGHT"}), 1) == [{"ROWS": 6, "LEFT": 23, "RIGHT": 23}]
