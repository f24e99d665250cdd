"""Sums across memory, on the path for known sizes."""

import pytest
from compiled import problem

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options
from kernelllm.core.types import Candidate
from kernelllm.judge import Judge

BODY = """
class Model(nn.Module):
    def forward(self, x):
        return RESULT
batch, rows, columns = 16, 65, COLUMNS
def get_inputs(): return [torch.randn(batch, rows, columns)]
def get_init_inputs(): return []
"""
RESULTS = ["x.sum(1)", "torch.relu(x - 1).mean(1) + x.square().sum(1)"]


def body(result: str, columns: int) -> str:
    return BODY.replace("RESULT", result).replace("COLUMNS", str(columns))


def written(text: str) -> str:
    return compiled(problem(text), Options(fixed=True, mixed=True))


@pytest.mark.parametrize("result", RESULTS)
def test_results_are_right(hybrid: Judge, result: str) -> None:
    text = body(result, 515)
    verdict = hybrid.judge(problem(text), Candidate(source=written(text)))
    assert verdict.correct, verdict.message
    assert "at the original size" in verdict.message or "the original one among them" in verdict.message, verdict.message


def test_each_program_has_columns_of_one_outer_index_and_shallow_tiles_are_summed_at_once() -> None:
    source = written(body("x.sum(1)", 515))
    assert "16 * -(-515 // meta" in source
    assert "if BLOCK_COLS > 4 else tl.sum(" in source


def test_columns_that_blocks_divide_stay_counted_through_all_rows() -> None:
    assert "8192 // meta" in written(body("x.sum(1)", 512))


def test_how_many_rows_there_are_may_vary_on_the_path_beside_it() -> None:
    text = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(65, 515))
    def forward(self, x):
        return (x[:, :, None] * self.weight).sum(1)
batch = 16
def get_inputs(): return [torch.randn(batch, 65)]
"""
    assert "[((515 * batch) // 515 * 9,)]" in written(text)
