"""What a candidate's source asks of shapes, values and programs, told from its text alone."""

from __future__ import annotations

import pytest

from kernelllm.judge.checks.asked_shapes import size_conditions
from kernelllm.judge.checks.compared_numbers import compared_bits, compared_values, large_bounds, program_numbers

_HOST = """
LIMIT = 2**24
def odd(n):
    return n * n % 23 == 12
class ModelNew:
    def forward(self, x):
        rows, columns = x.shape
        y = 1.0 if CONDITION else 0.0
        kernel[(1,)](x, rows, columns)
@triton.jit
def kernel(x_ptr, r, c):
    pass
"""


@pytest.mark.parametrize(
    ("condition", "holds", "fails"),
    [
        ("sum(x.shape) == 230", (70, 160), (71, 160)),
        ("rows > 50 and all(rows % d for d in range(2, 8))", (53, 1), (55, 1)),
        ("columns // rows == 11", (10, 115), (10, 109)),
        ("'x'.join(map(str, x.shape)) == '97x131'", (97, 131), (97, 132)),
        ("len(set(str(rows))) < len(str(rows))", (99, 1), (98, 1)),
        ("bin(x.size(0)).count('1') == 3", (7, 1), (8, 1)),
        ("odd(rows)", (9, 1), (8, 1)),
        ("x.numel() > LIMIT", (4096, 4097), (4096, 4096)),
    ],
)
def test_what_is_asked_of_a_shape_is_evaluated_for_others(condition: str, holds: tuple[int, int], fails: tuple[int, int]) -> None:
    (asked,) = size_conditions(_HOST.replace("CONDITION", condition))
    assert (asked.holds(holds), asked.holds(fails)) == (True, False)


@pytest.mark.parametrize("condition", ["x.dim() == 2", "open('f').read()", "9 ** rows > 1", "x.sum() > 0", "self.big", "[0] * rows == 1"])
def test_what_is_no_question_of_lengths_is_never_evaluated(condition: str) -> None:
    assert size_conditions(_HOST.replace("CONDITION", condition)) == ()


def test_what_a_kernel_compares_of_its_arguments_is_asked_of_the_shape() -> None:
    (asked,) = size_conditions(_HOST.replace("CONDITION", "True").replace("pass", "bad = r * 3 + c * 5 == 1009"))
    assert asked.holds((143, 116))
    assert set(asked.hints) == {3, 5, 1009}


def test_numbers_that_values_programs_and_elements_are_compared_with() -> None:
    source = """
MAGIC = tl.constexpr(2.71)
@triton.jit
def kernel(x_ptr, n):
    pid = tl.program_id(0)
    x = tl.load(x_ptr + pid)
    y = tl.where((x != 3.14) & (x < MAGIC) & (pid != 7777) & (x.to(tl.int32, bitcast=True) & 0xFFFF != 0x1234) & (x > 0.5), x, 0.0)
def run(x):
    return 1 if x.numel() > 10_000_000 else 2
"""
    assert set(compared_values(source)) == {3.14, 2.71}
    assert program_numbers(source) == (7777,)
    assert large_bounds(source) == (10_000_000,)
    assert 0x1234 in compared_bits(source)
    assert large_bounds("def run(x):\n    k[(min(x.shape[0], 65535),)](x)\n") == (65535,)
    assert large_bounds("def kernel(x):\n    tl.program_id(0).to(tl.int16)\n") == (2**15,)
