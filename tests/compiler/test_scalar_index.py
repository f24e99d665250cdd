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
QUEUE = """
class Model(nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.register_buffer("cache", torch.zeros(2, rows, width))
        self.register_buffer("table", torch.randn(rows, width))
        self.register_buffer("pos", torch.tensor(3))
        self.register_buffer("block", torch.tensor([1]))
        self.register_buffer("most", torch.tensor(2.7))
    def forward(self, x):
        b, t, w = x.shape
        p, i = int(self.pos), self.block.item()
        self.cache[:b, p:p + t] = x
        ids = torch.arange(p, p + t, device=x.device)
        part = self.table[i * 4:(i + 1) * 4]
        y = x + self.table[ids] + self.table.narrow(0, self.pos, 4).sum(0)
        kept = self.cache[0, p:p + t].clone()
        self.cache[i, p - 1:p + 1] = 1.5
        self.pos.add_(1)
        return y * int(self.most) + float(self.block), part * 2, ids, kept, self.cache[:, 1 + p - 2:p + 1, 2:]
def get_inputs(): return [torch.randn(2, 5, 16)]
def get_init_inputs(): return [24, 16]
"""
VIEWS = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(5, 4, 6))
        self.register_buffer("at", torch.tensor(7))
    def forward(self, x):
        at = self.at % 5
        self.cache[at].copy_(x)
        row = self.cache[at, :, 1:4]
        row.mul_(2)
        row[1:3] = -1.0
        self.cache[:, at % 4] += x[0]
        self.at += 1
        return self.cache * 2, row + 1
def get_inputs(): return [torch.randn(4, 6)]
def get_init_inputs(): return []
"""


def test_rows_are_read_at_a_number_in_a_tensor(quick: Judge) -> None:
    verdict = quick.judge(problem(READ), Candidate(source=compiled(problem(READ), Options(extern="forbid"))))
    assert verdict.correct, verdict.message


def test_rows_are_written_at_a_number_in_a_tensor(quick: Judge) -> None:
    verdict = quick.judge(problem(WRITTEN), Candidate(source=compiled(problem(WRITTEN), Options(extern="forbid"))))
    assert verdict.correct, verdict.message


def test_slices_begin_at_a_number_in_a_tensor(quick: Judge) -> None:
    verdict = quick.judge(problem(QUEUE), Candidate(source=compiled(problem(QUEUE), Options(extern="forbid"))))
    assert verdict.correct, verdict.message


def test_what_is_written_into_a_row_is_written_where_it_was(quick: Judge) -> None:
    verdict = quick.judge(problem(VIEWS), Candidate(source=compiled(problem(VIEWS), Options(extern="forbid"))))
    assert verdict.correct, verdict.message
