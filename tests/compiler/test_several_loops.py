"""Loops one behind the other: each becomes a kernel of its own."""

from __future__ import annotations

import re

import pytest
from compiled import problem

from kernelllm.compiler.compiler_writer import Compiler
from kernelllm.judge import Judge

THREE = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.decay = nn.Parameter(torch.rand(width))
    def forward(self, x):
        state, seen, gains = torch.zeros_like(x[:, 0]), [], []
        for t in range(x.shape[1]):
            state = torch.tanh(state * self.decay + x[:, t])
            seen.append(state)
        gain = state.sigmoid()
        for s in reversed(seen):
            gain = gain * 0.5 + s
            gains.append(gain)
        total, ends = gain.abs(), [gain]
        for t in range(x.shape[1]):
            total = torch.maximum(total * 0.9, x[:, t])
            ends.append(total)
        return torch.stack(gains[::-1], 1) + 1, torch.stack(ends, dim=1).exp()
batch, steps, width = 4, 9, 50
def get_inputs(): return [torch.randn(batch, steps, width)]
def get_init_inputs(): return [width]
"""
IN_METHODS = """
class Model(nn.Module):
    def targets(self, r, v, d):
        acc, found = torch.zeros_like(v[-1]), []
        for t in range(r.shape[0] - 1, -1, -1):
            acc = r[t] + d[t] * v[t + 1] - v[t] + d[t] * acc
            found.append(acc)
        found.reverse()
        return torch.stack(found) + v[:-1]
    def advantages(self, r, v, d):
        out, last = torch.zeros_like(r), 0
        for t in reversed(range(r.shape[0])):
            follows = v[-1] if t == r.shape[0] - 1 else v[t + 1]
            out[t] = last = r[t] + 0.9 * follows * d[t] - v[t] + 0.8 * d[t] * last
        return out
    def forward(self, r, v, d):
        wanted = self.targets(r, v, d)
        return (wanted - v[:-1]).square().mean(), self.advantages(r, v, d)
steps, batch = 11, 40
def get_inputs(): return [torch.randn(steps, batch), torch.randn(steps + 1, batch), torch.rand(steps, batch)]
def get_init_inputs(): return []
"""


@pytest.mark.parametrize(("text", "loops"), [(THREE, 3), (IN_METHODS, 2)], ids=["three", "in methods"])
def test_each_loop_is_a_kernel_and_right_at_every_length(text: str, loops: int, quick: Judge) -> None:
    candidate = next(Compiler().write(problem(text), 1))
    assert candidate.source.count("for _ in tl.range(0, steps") == loops
    methods = re.findall(r"^    def (\w+)\(", candidate.source.partition("class ModelNew")[2], re.MULTILINE)
    assert len(methods) == len(set(methods))
    verdict = quick.judge(problem(text), candidate)
    assert verdict.correct, verdict.message
    assert len(verdict.shapes) > 1
