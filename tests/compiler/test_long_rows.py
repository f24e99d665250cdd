"""On the path for known sizes: running sums of few long rows, sorts of short ones, reductions over concatenations."""

from __future__ import annotations

import pytest
from compiled import problem

from kernelllm.compiler.compiler_writer import Compiler, compiled
from kernelllm.compiler.options import Options
from kernelllm.judge import Judge

KNOWN = {"fixed": True, "mixed": True}

SUMS = """
class Model(nn.Module):
    def forward(self, x, counts):
        order = torch.cumsum(x, DIM)
        return order / order.abs().amax(), (counts > 2).cumsum(-1)
length = LENGTH
def get_inputs(): return [torch.randn(SHAPE).to(torch.DTYPE), torch.randint(0, 5, (1, 1000))]
def get_init_inputs(): return []
"""


@pytest.mark.parametrize(("shape", "dim", "length", "dtype"), [
    ("length", 0, 9000, "float32"), ("length, 1", 0, 8192, "float32"), ("1, length", -1, 8200, "float16"),
])  # fmt: skip
def test_a_long_running_sum_is_taken_in_chunks(shape: str, dim: int, length: int, dtype: str, hybrid: Judge) -> None:
    text = SUMS.replace("SHAPE", shape).replace("DIM", str(dim)).replace("LENGTH", str(length)).replace("DTYPE", dtype)
    candidate = next(Compiler(**KNOWN).write(problem(text), 1))
    known = candidate.source.partition("def forward_at_known_sizes")[2]
    assert f"[({-(-length // 1024)},)]" in known  # a program a chunk
    verdict = hybrid.judge(problem(text), candidate)
    assert verdict.correct, verdict.message
    assert "original size was not tried" not in verdict.message


def test_infinite_numbers_in_a_chunk_leave_the_sums_before_them_as_they_are(hybrid: Judge) -> None:
    text = SUMS.replace("SHAPE", "length").replace("DIM", "0").replace("LENGTH", "8192").replace("DTYPE", "float32")
    text = text.replace("cumsum(x,", 'cumsum(x.masked_fill(x > 3, float("inf")),').replace("order / order.abs().amax()", "order")
    verdict = hybrid.judge(problem(text), next(Compiler(**KNOWN).write(problem(text), 1)))
    assert verdict.correct, verdict.message


SORTED = """
class Model(nn.Module):
    def forward(self, scores, ids):
        best, chosen = torch.topk(scores, 12, dim=1)
        chosen, order = torch.sort(chosen, dim=1)
        ranked, places = scores.sort(dim=0, descending=True)
        return chosen, best.gather(1, order), ranked, places, torch.sort(ids, dim=1)[0]
rows, columns = 20, 90
def get_inputs(): return [torch.randn(rows, columns), torch.randint(-2**40, 2**40, (rows, 33))]
def get_init_inputs(): return []
"""


def test_positions_are_sorted_by_the_template_and_numbers_of_64_bits_by_torch(hybrid: Judge) -> None:
    candidate = next(Compiler(**KNOWN).write(problem(SORTED), 1))
    known = candidate.source.partition("def forward_at_known_sizes")[2]
    assert known.count("aten.sort.stable(") == 1
    verdict = hybrid.judge(problem(SORTED), candidate)
    assert verdict.correct, verdict.message
    assert "original size was not tried" not in verdict.message


BORDERED = """
class Model(nn.Module):
    def forward(self, x, border, weight):
        wide = torch.cat([torch.cat([x, border.expand(x.shape[0], x.shape[1], 1)], 2), border.expand(x.shape[0], 1, x.shape[2] + 1)], 1)
        return torch.logsumexp(wide + weight, 2), torch.logsumexp(wide + weight, 1)
batch, rows, columns = 4, 512, 480
def get_inputs(): return [torch.randn(batch, rows, columns), torch.randn(1, 1, 1), torch.randn(1, 1, columns + 1)]
def get_init_inputs(): return []
"""


def test_reductions_over_concatenations_have_a_path_for_known_sizes() -> None:
    assert "def forward_at_known_sizes" in compiled(problem(BORDERED), Options(**KNOWN, extern="auto"))
