"""Tensors of one number as indices: nothing reads the number."""

from __future__ import annotations

from compiled import problem

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options
from kernelllm.core.types import Candidate
from kernelllm.judge import Judge

READ = """
class Model(nn.Module):
    def __init__(self, steps):
        super().__init__()
        self.register_buffer("rates", torch.linspace(0.1, 0.9, steps))
    def forward(self, x, t, back, rows):
        near = x[1, t, 2:, None] + x[..., t, -1].sum(0)[None, None]
        return x * self.rates[t], x[:, t], near, x[:, back], x[t, back], x[back, :, t], x[rows, t], x[None, ..., t], x.select(-1, back)
steps = 50
def get_inputs(): return [torch.randn(6, 8, 7), torch.tensor(5), torch.tensor(-2, dtype=torch.int32), torch.tensor([3, 0, 1])]
def get_init_inputs(): return [steps]
"""
WRITTEN = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("ring", torch.zeros(5, 4))
        self.register_buffer("at", torch.tensor(7))
    def forward(self, cache, x, t):
        new, other, third = cache.clone(), cache * 2, cache + 1
        new[:, t] = x
        new[1, t, 2:] = x[0, 2:]
        other[t] = 0.5
        other[..., -t] += x[:, 0, None]
        third[t, t] = x[1]
        third[t, :, t] = x[0, 1]
        self.ring[self.at % 5] = x[0]
        self.at += 1
        return new, other, third, self.ring * 2
def get_inputs(): return [torch.randn(6, 6, 4), torch.randn(6, 4), torch.tensor(2)]
def get_init_inputs(): return []
"""


def test_rows_are_read_at_a_number_in_a_tensor(quick: Judge) -> None:
    verdict = quick.judge(problem(READ), Candidate(source=compiled(problem(READ), Options(extern="forbid"))))
    assert verdict.correct, verdict.message


def test_rows_are_written_at_a_number_in_a_tensor(quick: Judge) -> None:
    verdict = quick.judge(problem(WRITTEN), Candidate(source=compiled(problem(WRITTEN), Options(extern="forbid"))))
    assert verdict.correct, verdict.message
