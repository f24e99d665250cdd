"""Loops of modules with gradients: one kernel goes through all steps, another goes back."""

from __future__ import annotations

import re

import msgspec
import pytest
from compiled import problem

from kernelllm.compiler.compiler_writer import Compiler, compiled
from kernelllm.compiler.options import Options
from kernelllm.core.types import Candidate
from kernelllm.judge import Judge

FIELD = """
class Model(nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.transitions = nn.Parameter(torch.randn(tags, tags))
    def partition(self, x, mask):
        alpha = x[:, 0]
        for t in range(1, x.size(1)):
            following = torch.logsumexp(alpha.unsqueeze(2) + self.transitions, 1) + x[:, t]
            alpha = torch.where(mask[:, t, None], following, alpha)
        return torch.logsumexp(alpha, 1)
    def forward(self, emissions, lengths):
        mask = torch.arange(emissions.size(1), device=emissions.device) < lengths.unsqueeze(1)
        with torch.enable_grad():
            x = emissions.detach().requires_grad_()
            grads = torch.autograd.grad(self.partition(x, mask).mean(), [x, self.transitions])
        return grads
batch, length, tags = 6, 12, 5
def get_inputs(): return [torch.randn(batch, length, tags), torch.randint(1, length + 1, (batch,))]
def get_init_inputs(): return [tags]
"""

CELL = """
class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.given, self.recurrent, self.hidden = nn.Linear(width, 2 * hidden), nn.Linear(hidden, 2 * hidden), hidden
    def forward(self, x):
        h = torch.zeros(x.size(0), self.hidden, device=x.device)
        outs = []
        for t in range(x.size(1)):
            gate, new = (self.given(x[:, t]) + self.recurrent(h)).chunk(2, 1)
            h = torch.lerp(h, torch.tanh(new), torch.sigmoid(gate))
            outs.append(F.pad(h[:, 1:], (1, 0)))
        return torch.stack(outs, 1), h
batch, length, width, hidden = 6, 12, 7, 9
def get_inputs(): return [torch.randn(batch, length, width)]
def get_init_inputs(): return [width, hidden]
"""

DIAGONALS = """
class Model(nn.Module):
    def forward(self, costs):
        with torch.enable_grad():
            x = costs.detach().requires_grad_()
            places = torch.arange(x.size(2), device=x.device)
            last = torch.zeros_like(x[:, 0])
            before = torch.zeros_like(last)
            for d in range(x.size(1)):
                side = F.pad(before[:, :-1], (1, 0))
                side = torch.where((places == 0) & (d == 0), 1.0, side)
                before, last = last, x[:, d] - torch.logsumexp(torch.stack([last, side]), 0)
            grads = torch.autograd.grad(last.mean(), [x])
        return grads
batch, steps, width = 4, 9, 6
def get_inputs(): return [torch.randn(batch, steps, width)]
def get_init_inputs(): return []
"""

FARTHEST = """
class Model(nn.Module):
    def __init__(self, samples):
        super().__init__()
        self.samples = samples
    def forward(self, points):
        batch, n, _ = points.shape
        rows = torch.arange(batch, device=points.device)
        distance = torch.full((batch, n), 1e10, device=points.device)
        farthest = torch.zeros(batch, dtype=torch.long, device=points.device)
        chosen = []
        for _ in range(self.samples):
            chosen.append(farthest)
            distance = torch.minimum(distance, ((points - points[rows, farthest].unsqueeze(1)) ** 2).sum(-1))
            farthest = distance.argmax(-1)
        return torch.stack(chosen, 1)
batch, n, samples = 3, 40, 9
def get_inputs(): return [torch.randn(batch, n, 3)]
def get_init_inputs(): return [samples]
"""

TRIDIAGONAL = """
class Model(nn.Module):
    def forward(self, low, diagonal, up, right):
        n = right.shape[-1]
        c, d = up.clone(), [right[:, 0] / diagonal[:, 0]]
        c[:, 0] = up[:, 0] / diagonal[:, 0]
        for i in range(1, n):
            m = 1.0 / (diagonal[:, i] - low[:, i] * c[:, i - 1])
            c[:, i] *= m
            d.append((right[:, i] - low[:, i] * d[i - 1]) * m)
        x = torch.zeros_like(right)
        x[:, -1] = d[-1]
        for i in range(n - 2, -1, -1):
            x[:, i] = d[i] - c[:, i] * x[:, i + 1]
        return x
batch, n = 5, 12
def get_inputs(): return [torch.rand(batch, n), torch.rand(batch, n) + 3.0, torch.rand(batch, n), torch.randn(batch, n)]
def get_init_inputs(): return []
"""

ALIGNED = """
class Model(nn.Module):
    def forward(self, x):
        state = x[:, 0]
        for t in range(1, x.size(1)):
            moved = [F.pad(state[:, :-k], (k, 0), value=-1e9) for k in (1, 2)]
            state = torch.logsumexp(torch.stack([state, *moved]), 0) + x[:, t]
        return torch.logsumexp(state, 1)
batch, length, states = 6, 12, 9
def get_inputs(): return [torch.randn(batch, length, states)]
def get_init_inputs(): return []
"""

SYSTEM = """
class Model(nn.Module):
    def __init__(self, steps):
        super().__init__()
        self.steps = steps
    def solve(self, low, diagonal, up, right):
        n = right.shape[1]
        c, d = [up[:, 0] / diagonal[:, 0]], [right[:, 0] / diagonal[:, 0]]
        for i in range(1, n):
            m = diagonal[:, i] - low[:, i] * c[-1]
            c.append(up[:, i] / m)
            d.append((right[:, i] - low[:, i] * d[-1]) / m)
        x = [d[-1]]
        for i in range(n - 2, -1, -1):
            x.append(d[i] - c[i] * x[-1])
        return torch.stack(x[::-1], 1)
    def forward(self, value, slope):
        for _ in range(self.steps):
            value = torch.relu(self.solve(slope, 3 + slope, 1 - slope, value))
        return value
batch, points = 6, 20
def get_inputs(): return [torch.randn(batch, points), torch.rand(batch, points)]
def get_init_inputs(): return [2]
"""

LONG = """
class Model(nn.Module):
    def forward(self, x, y):
        return torch.log(torch.exp(x[:, 1:].unsqueeze(3) + y[:, :-1].unsqueeze(2)).sum((0, 1)))
batch, length, width = 64, 512, 32
def get_inputs(): return [torch.randn(batch, length, width), torch.randn(batch, length, width)]
def get_init_inputs(): return []
"""


@pytest.mark.parametrize(("text", "backward"), [(FIELD, False), (CELL, True), (DIAGONALS, False)], ids=["field", "cell", "diagonals"])
def test_a_loop_is_one_kernel_forward_and_one_back(quick: Judge, text: str, backward: bool) -> None:
    given = msgspec.structs.replace(problem(text), tags=("gradients",) if backward else ())
    source = compiled(given, Options(backward=backward, any_dtype=False))
    loops = re.findall(r"def (time_loop\w*_kernel)", source)
    assert len(loops) == 2
    assert all(source.count(f"{name}[") == 1 for name in loops)
    verdict = quick.judge(given, Candidate(source=source))
    assert verdict.correct, verdict.message


SPIKES = """
class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v):
        ctx.save_for_backward(v)
        return (v > 0).to(v.dtype)
    @staticmethod
    def backward(ctx, grad):
        return grad / (1 + ctx.saved_tensors[0].abs()) ** 2
class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.given, self.read = nn.Linear(width, hidden), nn.Linear(hidden, 3)
    def forward(self, x):
        v, total = x.new_zeros(x.shape[1], self.given.out_features), 0
        for t in range(x.shape[0]):
            v = 0.9 * v + self.given(x[t])
            spike = Spike.apply(v - 0.1)
            v = v - spike
            total = total + self.read(spike)
        return total / x.shape[0]
steps, batch, width, hidden = 10, 4, 6, 8
def get_inputs(): return [torch.rand(steps, batch, width)]
def get_init_inputs(): return [width, hidden]
"""


@pytest.mark.parametrize(("text", "loops"), [(FARTHEST, 1), (TRIDIAGONAL, 2), (SPIKES, 1)], ids=["farthest", "tridiagonal", "spikes"])
def test_a_loop_without_gradients_is_one_kernel_where_it_would_be_launched_or_unrolled(quick: Judge, text: str, loops: int) -> None:
    source = compiled(problem(text), Options(any_dtype=False))
    assert len(re.findall(r"def time_loop\w*_kernel", source)) == loops
    assert "FIXED_SIZES" not in source
    assert ("h0 = torch.empty((1, " in source) == (text is not TRIDIAGONAL)  # of a state that nobody reads, the last step alone is kept
    verdict = quick.judge(problem(text), Candidate(source=source))
    assert verdict.correct, verdict.message


def test_rows_that_are_stacked_within_a_step_stay_programs_of_their_own() -> None:
    given = msgspec.structs.replace(problem(ALIGNED), tags=("gradients",))
    source = compiled(given, Options(backward=True, any_dtype=False))
    loops = re.findall(r"time_loop\w*_kernel\[(.*?)\]\(", source)
    assert loops
    assert all(grid == "(a0.shape[0],)" for grid in loops), loops


def test_elimination_and_substitution_in_a_method_are_a_kernel_each(quick: Judge) -> None:
    given = problem(SYSTEM)
    source = compiled(given, Options(any_dtype=False))
    assert len(re.findall(r"def time_loop\w*_kernel", source)) == 2
    assert "FIXED_SIZES" not in source
    verdict = quick.judge(given, Candidate(source=source))
    assert verdict.correct, verdict.message


def test_parts_of_a_sum_over_one_step_less_are_as_long_as_the_host_says() -> None:
    text = compiled(problem(LONG), Options(any_dtype=False))
    assert "chunk" in text
    assert "// splits" not in text


def test_products_of_very_many_rows_stay_a_librarys() -> None:
    """A program for each row loads the matrix for itself. Fewer rows are one kernel, and the next candidate is unrolled."""
    many = CELL.replace("batch, length, width, hidden = 6, 12, 7, 9", "batch, length, width, hidden = 65536, 8, 7, 72")
    assert "time_loop" not in compiled(problem(many), Options(any_dtype=False))
    first, second = Compiler(extern="auto", any_dtype=False).write_here(problem(CELL), 2)
    assert ["time_loop" in c.source for c in (first, second)] == [True, False]
    assert second.params["unroll"]
