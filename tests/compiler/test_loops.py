"""Loops over a dimension: the step is compiled, and the forward calls it."""

import re

import pytest
from compiled import problem

from kernelllm.compiler.compiler_writer import Compiler
from kernelllm.compiler.loops.loop import loop_step
from kernelllm.core.errors import CaptureError
from kernelllm.judge import Judge

CELL = """
class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.hidden = hidden
        self.gates = nn.Linear(width + hidden, 4 * hidden)
        self.head = nn.Linear(hidden, 5)
    def forward(self, x):
        batch = x.size(0)
        h = torch.zeros(batch, self.hidden, device=x.device)
        c = torch.zeros_like(h)
        outputs = []
        for t in range(x.shape[1]):
            i, f, g, o = self.gates(torch.cat((x[:, t, :], h), dim=1)).chunk(4, dim=1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h.unsqueeze(1))
        return torch.cat(outputs, dim=1), self.head(h)
STEPS, WIDTH, HIDDEN = 9, 24, 32
def get_inputs(): return [torch.randn(6, STEPS, WIDTH)]
def get_init_inputs(): return [WIDTH, HIDDEN]
"""

FILLED = """
class Net(nn.Module):
    def forward(self, x, decay):
        steps, _ = x.shape
        out = torch.empty_like(x)
        state = x[0] * 0
        for t in reversed(range(steps)):
            out[t] = state
            state = state * torch.sigmoid(decay) + x[t] * x[t].cos()
        return out
Model = Net
STEPS = 12
def get_inputs(): return [torch.randn(STEPS, 70), torch.randn(70)]
def get_init_inputs(): return []
"""

UNBOUND = """
class Model(nn.Module):
    def forward(self, x):
        best = torch.full_like(x[:, 0], -2.0)
        for row in x.unbind(1):
            best = torch.maximum(best * 0.9, row)
        return best
def get_inputs(): return [torch.randn(8, 12, 33)]
def get_init_inputs(): return []
"""


HELPED = """
from typing import Optional
SCALE = 0.5
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.cell = nn.LSTMCell(width, width)
    def start(self, x):
        rows = x.size(1)
        return torch.full((rows, self.width), SCALE, device=x.device), torch.zeros(rows, self.width, device=x.device)
    def forward(self, x, mask: Optional[torch.Tensor] = None):
        h, c = self.start(x)
        seen = []
        for t in range(len(x)):
            x_t = torch.relu(h)
            h, c = self.cell(x[t] + x_t, (h, c))
            seen.append(h + x[t])
        return torch.stack(seen).mean(0), c
STEPS, ROWS, WIDTH = 9, 5, 20
def get_inputs(): return [torch.randn(STEPS, ROWS, WIDTH)]
def get_init_inputs(): return [WIDTH]
"""


CELLS = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gru, self.rnn = nn.GRUCell(width, width, bias=False), nn.RNNCell(width, width, nonlinearity="relu")
    def forward(self, x):
        g = x.new_zeros(x.shape[1], x.shape[2])
        r = torch.zeros_like(g)
        for x_t in x:
            g = self.gru(x_t, g)
            r = self.rnn(g, r)
        return g, r
def get_inputs(): return [torch.randn(9, 6, 24)]
def get_init_inputs(): return [24]
"""


SCANNED = """
class Model(nn.Module):
    def __init__(self, d, n):
        super().__init__()
        self.A, self.D = nn.Parameter(-torch.rand(d, n)), nn.Parameter(torch.ones(d))
        self.proj, self.n = nn.Linear(d, 2 * n + d), n
    def forward(self, u):
        b, l, d = u.shape
        delta, B, C = self.proj(u).split([d, self.n, self.n], dim=-1)
        delta = F.softplus(delta)
        h = torch.zeros(b, d, self.n, device=u.device, dtype=u.dtype)
        ys = []
        for i in range(l):
            h = torch.exp(delta[:, i, :, None] * self.A) * h + delta[:, i, :, None] * B[:, i, None, :] * u[:, i, :, None]
            ys.append((h * C[:, i, None, :]).sum(-1))
        return torch.stack(ys, dim=1) + u * self.D
batch, length, width, state = 4, 12, 24, 16
def get_inputs(): return [torch.randn(batch, length, width)]
def get_init_inputs(): return [width, state]
"""


OTHER_FORMS = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.time_decay = nn.Parameter(torch.rand(width))
    def forward(self, keys_of_all_steps, values_of_all_steps, mixed_over_time):
        rows, steps, _ = keys_of_all_steps.size()
        output = torch.zeros_like(keys_of_all_steps)
        numerator_state, denominator_state = torch.zeros_like(keys_of_all_steps[:, 0]), torch.ones_like(keys_of_all_steps[:, 0])
        state = torch.zeros(rows, keys_of_all_steps.shape[2], mixed_over_time.shape[2], device=keys_of_all_steps.device)
        for index in range(steps):
            current_key, current_value = keys_of_all_steps[:, index], values_of_all_steps[:, index]
            numerator_state = torch.exp(-self.time_decay) * numerator_state + torch.exp(current_key) * current_value
            denominator_state = torch.exp(-self.time_decay) * denominator_state + torch.exp(current_key)
            state = state * 0.9 + current_value[:, :, None] * mixed_over_time[:, index, None, :]
            read = torch.matmul(state, mixed_over_time[:, index].unsqueeze(-1))
            output[:, index] = (numerator_state / denominator_state + read[:, :, 0]).to(output.dtype)
        return output
batch, length, width, states = 3, 12, 24, 16
def get_inputs(): return [torch.randn(batch, length, width), torch.randn(batch, length, width), torch.randn(batch, length, states)]
def get_init_inputs(): return [width]
"""


DELTA_RULE = """
class Model(nn.Module):
    def forward(self, q, k, v, gate):
        rows, steps, size = k.shape
        state = torch.zeros(rows, size, v.shape[2], device=v.device)
        out = torch.zeros_like(v)
        for t in range(steps):
            state = state * gate[:, t].exp()[:, None, None]
            known = (state * k[:, t, :, None]).sum(1)
            state = state + k[:, t, :, None] * (v[:, t] - known)[:, None, :]
            out[:, t] = (state * q[:, t, :, None]).sum(-2)
        return out
batch, length, size, width = 2, 12, 16, 24
def get_inputs(): return [torch.randn(batch, length, n) / 4 for n in (size, size, width)] + [-torch.rand(batch, length)]
def get_init_inputs(): return []
"""


GATED_HEADS = """
class Model(nn.Module):
    def forward(self, q, k, v, gate):
        b, h, t, d = q.shape
        state = torch.zeros(b, h, d, v.shape[-1], device=q.device, dtype=torch.float32)
        out = []
        for i in range(t):
            state = state * gate[:, :, i].float().exp()[..., None] + torch.einsum("bhd,bhe->bhde", k[:, :, i].float(), v[:, :, i].float())
            out.append((q[:, :, i].float()[..., None] * state).sum(-2))
        return torch.stack(out, dim=2).to(q.dtype)
batch, heads, length, size, width = 2, 3, 12, 16, 24
def get_inputs():
    q, k, v = (torch.randn(batch, heads, length, n, dtype=torch.bfloat16) / 4 for n in (size, size, width))
    return [q, k, v, -torch.rand(batch, heads, length, size)]
def get_init_inputs(): return []
"""


ZIPPED = """
class Model(nn.Module):
    def forward(self, a, x):
        h = torch.zeros(x.shape[1], x.shape[2], device=x.device)
        all_states = []
        for decay, t in zip(torch.unbind(a), x.unbind(0)):
            h = decay * h + t
            all_states.append(h)
        return torch.stack(all_states, 1)
def get_inputs(): return [torch.rand(12, 6, 24), torch.randn(12, 6, 24)]
def get_init_inputs(): return []
"""


SET_AGAIN = """
class Model(nn.Module):
    def forward(self, r, k, state):
        B, T, C = r.shape
        r, k = (x.view(B, T, state.shape[1], -1) for x in (r.relu(), k))
        out = []
        for t in range(T):
            known = torch.einsum("bhij,bhj->bhi", state, -k[:, t])
            state = state * 0.9 + known[..., None] * k[:, t].unsqueeze(-2)
            out.append(torch.einsum("bhij,bhj->bhi", state, r[:, t]))
        return torch.stack(out, dim=1).reshape(B, T, C) + (r * k).reshape(B, T, C), state
batch, heads, length, size = 2, 3, 6, 16
def get_inputs(): return [torch.randn(batch, length, heads * size) / 4 for _ in range(2)] + [torch.randn(batch, heads, size, size)]
def get_init_inputs(): return []
"""


STABILISED = """
class Model(nn.Module):
    def forward(self, q, k, v, i, f):
        B, H, T, D = q.shape
        C = torch.zeros(B, H, D, D, device=q.device)
        n, m = torch.zeros(B, H, D, device=q.device), torch.zeros(B, H, device=q.device)
        out = []
        for t in range(T):
            kept = F.logsigmoid(f[:, :, t]) + m
            m = torch.maximum(kept, i[:, :, t])
            kept, added = torch.exp(kept - m), torch.exp(i[:, :, t] - m)
            C = kept[..., None, None] * C + added[..., None, None] * (v[:, :, t, :, None] / D**0.5 * k[:, :, t, None, :])
            n = kept[..., None] * n + added[..., None] * k[:, :, t]
            size = torch.maximum((n * q[:, :, t]).sum(-1).abs(), torch.exp(-m))
            out.append((C * q[:, :, t, None, :]).sum(-1) / size[..., None])
        return torch.stack(out, dim=2), n
batch, heads, length, size = 2, 3, 6, 16
def get_inputs(): return [torch.randn(batch, heads, length, size) for _ in range(3)] + [torch.randn(batch, heads, length) for _ in range(2)]
def get_init_inputs(): return []
"""


PADDED = """
class Model(nn.Module):
    def forward(self, x, lengths):
        state, out = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            state = torch.where((t < lengths)[:, None], torch.tanh(x[:, t] + 0.5 * state), state)
            out.append(torch.where((lengths > t)[:, None], state, 0.0))
        return torch.stack(out, 1), state
batch, length, width = 5, 9, 24
def get_inputs(): return [torch.randn(batch, length, width), torch.randint(1, length + 1, (batch,))]
def get_init_inputs(): return []
"""

OF_A_GRAPH = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(256, 256) / 16)
    def forward(self, x):
        if x.dtype != torch.float32:
            raise ValueError("This is what the module does in float32")
        linear = torch.ops.aten.linear.default(x, self.weight)
        exp = torch.ops.aten.exp.default(linear)
        add_1 = torch.zeros([x.shape[0], 256], dtype=torch.float32, device=x.device)
        add_1_steps = []
        for i in range(exp.shape[1]):
            select = exp[:, i]
            mul_1 = add_1 * 0.5
            add_1 = mul_1 + select
            add_1_steps.append(add_1)
        stack = torch.stack(add_1_steps, 1)
        return torch.ops.aten.tanh.default(stack)
batch, length = 3, 7
def get_inputs(): return [torch.randn(batch, length, 256)]
def get_init_inputs(): return []
"""
"""Checks first, operators by their full names, and rows of whole blocks: kernels need no masks."""


@pytest.mark.parametrize(("text", "methods"), [
    (OF_A_GRAPH, {"step", "begin", "finish", "forward"}),
    (CELL, {"step", "begin", "finish", "forward"}), (FILLED, {"forward"}), (UNBOUND, {"step", "forward"}),
    (HELPED, {"forward"}), (CELLS, {"step", "forward"}),
    (SCANNED, {"step", "begin", "finish", "forward"}), (OTHER_FORMS, {"step", "forward"}), (ZIPPED, {"step", "forward"}),
    (DELTA_RULE, {"step", "forward"}), (GATED_HEADS, {"step", "forward"}), (SET_AGAIN, {"step", "begin", "finish", "forward"}),
    (STABILISED, {"step", "forward"}), (PADDED, {"step", "begin", "forward"}),
], ids=["of a graph", "cell", "filled", "unbound", "helped", "cells", "scanned", "other forms", "zipped", "delta rule", "gated heads",
        "set again", "stabilised", "padded"])  # fmt: skip
def test_a_loop_stays_one_and_is_right_at_every_length(text: str, methods: set[str], quick: Judge) -> None:
    candidate = next(Compiler().write(problem(text), 1))
    assert set(re.findall(r"^    def ([a-z]+)\(", candidate.source.partition("class ModelNew")[2], re.MULTILINE)) == methods
    assert "Holds parameters" not in candidate.source.partition("class ModelNew")[2]
    if methods == {"forward"}:  # an operator
        assert "def time_loop" in candidate.source
    elif text not in (CELL, UNBOUND, CELLS, PADDED):  # the loop is inside the kernel
        assert "for _ in tl.range(0, steps" in candidate.source
    verdict = quick.judge(problem(text), candidate)
    assert verdict.correct, verdict.message
    assert len(verdict.shapes) > 1


def test_a_normaliser_beside_the_state_is_in_the_same_kernel_whichever_way_the_state_lies() -> None:
    text = GATED_HEADS.replace("out = []", "out, z = [], torch.zeros(b, h, d, device=q.device)").replace(
        "out.append(", "z = z + k[:, :, i].float()\n            out.append(1 / (q[:, :, i].float() * z).sum(-1, keepdim=True) * "
    )
    source = next(Compiler().write(problem(text), 1)).source
    assert "for _ in tl.range(0, steps" in source
    assert source.count("@triton.jit") == 1


def test_what_cannot_be_compiled_outside_of_the_loop_is_left_to_torch_unless_that_is_forbidden() -> None:
    text = UNBOUND.replace("randn(8, 12, 33)", "randn(8, 3, 33)")
    short = problem(text.replace("return best", "return best.abs().long().flatten().bincount()"))
    source = next(Compiler().write(short, 1)).source
    assert "torch.ops.aten.bincount(" in source.partition("def finish(")[2]
    with pytest.raises(CaptureError):
        next(Compiler(extern="forbid").write(short, 1))


def test_where_launches_stay_in_a_loop_what_torch_compile_has_comes_second() -> None:
    text = problem(CELLS.replace("randn(9,", "randn(3,"))
    first, second = Compiler(extern="auto").write(text, 2)
    assert "def step" in first.source
    assert second.params["unroll"]
    assert "def step" not in second.source
    assert not any(c.params.get("unroll") for c in Compiler(extern="auto").write(problem(ZIPPED), 2))


GROWING = """
class Model(nn.Module):
    def forward(self, x):
        total = torch.zeros(1, 24)
        for t in range(x.shape[0]):
            total = total + x[t]
        return total
def get_inputs(): return [torch.randn(4, 6, 24)]
def get_init_inputs(): return []
"""


def test_what_changes_its_shape_on_the_way_is_compiled_unrolled() -> None:
    assert loop_step(problem(GROWING)) is not None
    candidate = next(Compiler().write(problem(GROWING), 1))
    assert "def step" not in candidate.source
    assert "def step" in next(Compiler().write(problem(GROWING.replace("(1, 24)", "(6, 24)")), 1)).source


LEFT = {
    "reads a slice that it has just filled": "for t in range(n):\n            y[t] = torch.sin(x[t])\n            x = y[t] * 2",
    "picks by what the step computes": "for t in range(n):\n            k = int(x.sum())\n            y[t] = x[t, k]",
    "fills where the step computes": "for t in range(n):\n            k = t + 1\n            y[t, k] = x[t, 0]",
    "uses a list in a step": "for t in range(n):\n            seen += [x]",
    "over layers": "for i in range(len(self.layers)):\n            x = self.layers[i](x)",
    "a count": "for _ in range(3):\n            x = torch.tanh(x)",
    "computes with the counter": "for t in range(x.shape[0]):\n            x = x * t",
    "ends early": "for t in range(x.shape[0]):\n            x = x + x[t]\n            if t > 2:\n                break",
    "uses a size": "for t in range(n):\n            x = torch.tanh(x).view(n, -1)",
    "writes into an attribute": "for t in range(n):\n            self.last = torch.tanh(x)",
    "writes into a slice in a branch": "for t in range(n):\n            if n > 3:\n                y[t] = torch.sin(x[t])",
}


@pytest.mark.parametrize("loop", LEFT.values(), ids=LEFT.keys())
def test_other_loops_are_left_as_they_are(loop: str) -> None:
    text = f"""
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
    def forward(self, x):
        n = x.shape[0]
        y = torch.empty_like(x)
        seen = []
        {loop}
        return x
def get_inputs(): return [torch.randn(4, 8)]
def get_init_inputs(): return []
"""
    assert loop_step(problem(text)) is None
