"""Loops in functions, methods and layers that a forward calls: they become loops of the forward."""

import pytest
import torch
from compiled import problem

from kernelllm.compiler.compiler_writer import Compiler, compiled
from kernelllm.compiler.loops.inlined_loops import with_inlined_loop
from kernelllm.compiler.loops.loop import loop_step
from kernelllm.compiler.options import Options
from kernelllm.core.types import Candidate
from kernelllm.judge.judging import Judge

TAIL = """
batch, length, width = 3, 5, 8
def get_inputs(): return [torch.randn(batch, length, width)]
def get_init_inputs(): return [width]
"""
FORMS = {
    "a function": """
def scan(x, decay, start=0.5):
    h = torch.full_like(x[:, 0], start)
    ys = []
    for t in range(x.shape[1]):
        h = h * decay + x[:, t]
        ys.append(h)
    return torch.stack(ys, 1)
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.decay = nn.Parameter(torch.rand(width))
    def forward(self, x):
        h = torch.sigmoid(self.decay)
        return scan(x * 2, decay=h) + h
""",
    "a method that a method calls": """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.decay = nn.Parameter(torch.rand(width))
    def run(self, x, h):
        b, n, w = x.shape
        out = torch.zeros(b, n, w, device=x.device)
        for t in range(n):
            h = h * self.decay + x[:, t]
            out[:, t] = h
        return out, h
    def both(self, x):
        y, h = self.run(x, torch.zeros_like(x[:, 0]))
        return y * 2, h
    def forward(self, x):
        half = lambda v: v * 0.5
        a, b = (half(v) for v in (x, x + 1))
        y, h = self.both(a - b)
        return y, half(h)
""",
    "a layer of its own": """
class Cell(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.decay = nn.Parameter(torch.rand(width))
    @staticmethod
    def last(y):
        return y[:, -1]
    def forward(self, x):
        ys, h = [], torch.zeros_like(x[:, 0])
        for x_t in x.unbind(1):
            h = torch.tanh(h * self.decay + x_t)
            ys.append(h)
        return torch.stack(ys, 1)
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.cell = Cell(width)
    def forward(self, x):
        return x + self.cell(x)
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.block = Block(width)
    def forward(self, x):
        return self.block(x).relu()
""",
    "layers with states of their own": """
class Cell(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.decay = nn.Parameter(torch.rand(width))
    def step(self, x, state):
        h, c = state
        c = c * self.decay + x
        return torch.tanh(c) + h * 0.1, c
    def forward(self, x, state):
        ys: list[torch.Tensor] = []
        for x_t in x.unbind(1):
            state = self.step(x_t, state)
            ys.append(state[0])
        return torch.stack(ys, 1), state
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList([Cell(width) for _ in range(2)])
    def forward(self, x):
        first = torch.stack([x[:, 0], x[:, 1]])
        hs, cs = [], []
        for layer, h, c in zip(self.layers, first, first):
            x, (h, c) = layer(x, (h, c))
            hs.append(h)
            cs.append(c)
        return x, torch.stack(hs), torch.stack(cs)
""",
}
FORMS["twice"] = FORMS["a function"].replace("scan(x * 2, decay=h) + h", "scan(scan(x, h), h)")
OTHERS = {
    "of several ends": FORMS["a function"].replace("    ys = []\n", "    if x.shape[0] == 77:\n        return x\n    ys = []\n"),
    "in a branch": FORMS["a function"].replace("return scan(x * 2, decay=h) + h", "return scan(x, h) if self.training else x + h"),
}


def run(source: str) -> tuple[torch.Tensor, ...]:
    scope: dict = {}
    exec(source, scope)
    torch.manual_seed(0)
    model = scope["Model"](*scope["get_init_inputs"]())
    made = model(*scope["get_inputs"]())
    return made if isinstance(made, tuple) else (made,)


@pytest.mark.parametrize("form", FORMS)
def test_the_loop_is_the_forward_s(form: str) -> None:
    old = problem(FORMS[form] + TAIL)
    new = with_inlined_loop(old)
    assert loop_step(old) is None
    assert loop_step(new) is not None
    torch.testing.assert_close(run(new.source), run(old.source))


@pytest.mark.parametrize("form", OTHERS)
def test_what_cannot_be_told_apart_stays(form: str) -> None:
    old = problem(OTHERS[form] + TAIL)
    assert loop_step(with_inlined_loop(old)) is None


def test_a_loop_of_a_layer_goes_into_a_kernel_for_any_number_of_steps(hybrid: Judge) -> None:
    case = problem(FORMS["a layer of its own"] + TAIL)
    source = compiled(case, Options(extern="allow"))
    assert "steps" in source.split("@triton.jit")[1] + source.split("@triton.jit")[-1]
    verdict = hybrid.judge(case, Candidate(source=source))
    assert verdict.correct, verdict.message
    assert "only for these sizes" not in verdict.message


RESET = """
class Scan(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.rate = nn.Parameter(torch.rand(width))
    def forward(self, x, resets, bias=None):
        kept = torch.exp(-torch.sigmoid(x) * self.rate)
        if resets is not None:
            kept.masked_fill_(resets[..., None], 0.0)
        if bias is not None:
            x = x + bias
        h, ys = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            h = kept[:, t] * h + x[:, t]
            ys.append(h)
        return torch.stack(ys, 1)
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scan, self.out = Scan(width), nn.Linear(width, width)
    def forward(self, x, ids):
        resets = torch.zeros_like(ids, dtype=torch.bool)
        resets[:, 1:] = ids[:, 1:] != ids[:, :-1]
        y = self.scan(x, resets)
        states = []
        states.append(y[:, -1])
        return self.out(y), states
batch, steps, width = 3, 12, 16
def get_inputs(): return [torch.randn(batch, steps, width), torch.randint(0, 3, (batch, steps))]
def get_init_inputs(): return [width]
"""


def test_what_is_changed_in_place_ahead_of_a_loop_and_lists_behind_it(quick: Judge) -> None:
    (candidate,) = Compiler().write(problem(RESET), 1)
    assert "for _ in tl.range(0, steps" in candidate.source
    verdict = quick.judge(problem(RESET), candidate)
    assert verdict.correct, verdict.message
    assert len(verdict.shapes) > 1


GRADIENTS = """
class Model(nn.Module):
    def best(self, score, x):
        for t in range(x.size(1)):
            score = (score[:, :, None] + self.steps).amax(1) + x[:, t]
        return score
    def __init__(self, tags):
        super().__init__()
        self.steps = nn.Parameter(torch.randn(tags, tags))
    def forward(self, x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (grad,) = torch.autograd.grad(torch.tanh(x @ self.steps).square().sum(), [x])
        return grad, self.best(grad[:, 0], grad)
batch, length, tags = 4, 5, 12
def get_inputs(): return [torch.randn(batch, length, tags)]
def get_init_inputs(): return [tags]
"""


def test_a_loop_beside_gradients_is_unrolled_rather_than_leave_them_to_autograd() -> None:
    assert "autograd.grad(" not in next(Compiler().write(problem(GRADIENTS), 1)).source
