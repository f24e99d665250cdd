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
LAYERS = """
class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.decay = nn.Parameter(torch.rand(width))
    def forward(self, x):
        h, outs = torch.zeros_like(x[:, 0]), []
        for t in range(x.size(1)):
            h = torch.tanh(h * self.decay + x[:, t])
            outs.append(h)
        return torch.stack(outs, dim=1)
class Model(nn.Module):
    def __init__(self, width, count):
        super().__init__()
        self.layers = nn.ModuleList([Layer(width) for _ in range(count)])
    def forward(self, x):
        ends = []
        for i, layer in enumerate(self.layers):
            x = x + layer(x * 0.5)
            ends.append(x[:, -1])
        return x, torch.stack(ends)
batch, steps, width = 4, 9, 50
def get_inputs(): return [torch.randn(batch, steps, width)]
def get_init_inputs(): return [width, 2]
"""
SETTINGS = """
class Model(nn.Module):
    def __init__(self, discount, part):
        super().__init__()
        self.discount, self.part = discount, part
    def forward(self, r, v, d):
        alive = self.discount * (1 - d)
        deltas = r + alive * v[1:] - v[:-1]
        last, found = torch.zeros_like(v[0]), []
        for t in reversed(range(r.shape[0])):
            last = deltas[t] + alive[t] * self.part * last
            found.insert(0, last)
        return torch.stack(found)
steps, batch, discount, part = 11, 40, 0.95, 0.9
def get_inputs(): return [torch.randn(steps, batch), torch.randn(steps + 1, batch), torch.rand(steps, batch)]
def get_init_inputs(): return [discount, part]
"""
CELLS_OF_TORCH = """
class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.cell = nn.GRUCell(width, hidden)
    def forward(self, x):
        h, outs = x.new_zeros(x.size(0), self.cell.hidden_size), []
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
            outs.append(h)
        return torch.stack(outs, dim=1)
batch, steps, width, hidden = 4, 9, 24, 200
def get_inputs(): return [torch.randn(batch, steps, width)]
def get_init_inputs(): return [width, hidden]
"""


CHANGED_BEHIND = THREE.replace("ends.append(total)", "ends.append(total)\n            peak = total * 2").replace(
    "        return torch.stack", "        peak += self.decay\n        return peak, torch.stack")


@pytest.mark.parametrize(
    ("text", "loops"),
    [(THREE, 3), (IN_METHODS, 2), (LAYERS, 2), (CELLS_OF_TORCH, 0), (SETTINGS, 1)],
    ids=["three", "in methods", "in layers", "products", "settings"],
)
def test_each_loop_is_a_kernel_and_right_at_every_length(text: str, loops: int, quick: Judge) -> None:
    candidate = next(Compiler().write(problem(text), 1))
    assert candidate.source.count("for _ in tl.range(0, steps") == loops
    assert ("first=not t" in candidate.source) == (loops == 0)  # of the steps that the forward calls, the first alone checks
    methods = re.findall(r"^    def (\w+)\(", candidate.source.partition("class ModelNew")[2], re.MULTILINE)
    assert len(methods) == len(set(methods))
    verdict = quick.judge(problem(text), candidate)
    assert verdict.correct, verdict.message
    assert len(verdict.shapes) > 1


HELD = THREE.replace("        return torch.stack", "        total += self.decay\n        return total, torch.stack")


@pytest.mark.parametrize(("text", "loops"), [(CHANGED_BEHIND, 2), (HELD, 2)], ids=["of a step", "that a list holds"])
def test_what_is_changed_in_place_behind_the_loop(text: str, loops: int, quick: Judge) -> None:
    candidate = next(Compiler().write(problem(text), 1))
    assert candidate.source.count("for _ in tl.range(0, steps") == loops
    verdict = quick.judge(problem(text), candidate)
    assert verdict.correct, verdict.message


OF_ALL = """
class Model(nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.transitions, self.start = nn.Parameter(torch.randn(tags, tags)), nn.Parameter(torch.randn(tags))
    def forward(self, emissions, mask):
        score = self.start + emissions[0]
        for i in range(1, emissions.size(0)):
            follows = NEXT
            score = torch.where(mask[i].unsqueeze(1), follows, score)
        score += self.start
        return score.amax(1)
steps, batch, tags = 9, 6, 20
def get_inputs(): return [torch.randn(steps, batch, tags), torch.rand(steps, batch) > 0.2]
def get_init_inputs(): return [tags]
"""


@pytest.mark.parametrize("follows", [
    "torch.logsumexp(score.unsqueeze(2) + self.transitions + emissions[i].unsqueeze(1), dim=1)",
    "(score.unsqueeze(2) + self.transitions).max(dim=1)[0] + emissions[i]",
], ids=["random field", "best path"])  # fmt: skip
def test_a_state_that_follows_from_all_of_its_row_stays_in_the_kernel(follows: str, quick: Judge) -> None:
    text = OF_ALL.replace("NEXT", follows)
    candidate = next(Compiler().write(problem(text), 1))
    assert candidate.source.count("for _ in tl.range(0, steps") == 1
    assert "argmax" not in candidate.source
    verdict = quick.judge(problem(text), candidate)
    assert verdict.correct, verdict.message
    assert len(verdict.shapes) > 1


def test_how_many_numbers_make_a_state_may_be_known(quick: Judge) -> None:
    """A number that a settings object holds stands in the step's kernel as such."""
    text = OF_ALL.replace("NEXT", "(score.unsqueeze(2) + self.transitions).max(dim=1)[0] + emissions[i]")
    text = text.replace("def __init__(self, tags):", "def __init__(self, settings):\n        tags = settings.tags")
    text = text.replace("return [tags]", "return [Settings()]").replace("batch, tags)", "batch, 20)")
    text = "class Settings:\n    def __init__(self): self.tags = 20\n" + text
    candidate = next(Compiler().write(problem(text), 1))
    assert candidate.source.count("for _ in tl.range(0, steps") == 1
    verdict = quick.judge(problem(text), candidate)
    assert verdict.correct, verdict.message
    assert len(verdict.shapes) > 1


STRIDED = """
class Model(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.conv = nn.Conv1d(channels, width, 15, stride=8, padding=7)
    def forward(self, x):
        y = torch.einsum("bct,c,bct->btc", self.conv(x), self.conv.bias, self.conv(x))
        state, states = torch.zeros_like(y[:, 0]), []
        for t in range(y.shape[1]):
            state = torch.tanh(state * 0.5 + y[:, t])
            states.append(state)
        return torch.stack(states, 1), state.mean(1) / y.shape[1]
batch, channels, length, width = 3, 5, 60, 12
def get_inputs(): return [torch.randn(batch, channels, length)]
def get_init_inputs(): return [channels, width]
"""


def test_a_loop_over_what_a_strided_convolution_gives_serves_other_lengths(quick: Judge) -> None:
    """From how many columns there are, the length does not follow. A product of three would pin sizes, where opt_einsum is installed."""
    candidate = next(Compiler().write(problem(STRIDED), 1))
    verdict = quick.judge(problem(STRIDED), candidate)
    assert verdict.correct, verdict.message
    assert len({shape.inputs for shape in verdict.shapes}) > 1
    assert not any(f.check == "fixed_sizes" for f in verdict.findings), verdict.message
