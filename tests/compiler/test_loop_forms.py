"""Loops that go backwards, or are other in their first or last step, in one form: it computes the same, and becomes one kernel."""

from __future__ import annotations

import ast
import textwrap

import pytest
import torch
from compiled import problem

from kernelllm.compiler.compiler_writer import Compiler
from kernelllm.compiler.loops.loop_forms import with_one_form
from kernelllm.judge import Judge

FORMS = {
    "filled from the end": """
        last = torch.zeros_like(r[0])
        out = torch.zeros_like(r)
        for t in reversed(range(r.shape[0])):
            delta = r[t] + 0.9 * v[t + 1] * d[t] - v[t]
            out[t] = last = delta + 0.8 * d[t] * last
        return out, out + v[:-1]
    """,
    "a range downwards, and a list reversed": """
        last = torch.zeros_like(r[0])
        out = []
        for t in range(r.size(0) - 1, -1, -1):
            last = r[t] + d[t] * last
            out.append(last)
        out.reverse()
        return torch.stack(out) - v[:-1]
    """,
    "a list that grows at its front": """
        total, out = v[-1], []
        for t in reversed(range(len(r))):
            total = r[t] + d[t] * total
            out.insert(0, total)
        return torch.stack(out, 1)
    """,
    "parts, both backwards": """
        total, out = v[-1], []
        for a, b in zip(reversed(r.unbind(0)), reversed(d.unbind(0))):
            total = a + b * total
            out.append(total)
        out = torch.stack(out[::-1], dim=1)
        return out * 2
    """,
    "the last step is another": """
        gae, n = 0, r.size(0)
        out = torch.zeros_like(r)
        for t in reversed(range(n)):
            if t == n - 1:
                follows = v[n]
                live = 1.0 - d[-1]
            else:
                follows = v[t + 1]
                live = 1.0 - d[t + 1]
            gae = r[t] + 0.9 * follows * live - v[t] + 0.8 * live * gae
            out[t] = gae
        return out
    """,
    "an expression for the last step": """
        total, out = 0.0, []
        for t in reversed(range(r.shape[0])):
            follows = v[-1] if t == r.shape[0] - 1 else d[t + 1]
            total = r[t] * follows + d[t] * total
            out.insert(0, total)
        return torch.stack(out)
    """,
    "the first step is another": """
        state, out = torch.zeros_like(r[0]), []
        for t in range(r.shape[0]):
            shifted = d[t] - d[t - 1] if t > 0 else d[t]
            state = torch.tanh(state + shifted)
            if t != 0:
                state = state + r[t - 1]
            out.append(state)
        return torch.stack(out, dim=0)
    """,
    "from the second step on": """
        state, n = r[0], r.shape[0]
        seen = torch.empty((n - 1, 5))
        for t in range(1, n):
            state = state * d[t] + r[t] - r[t - 1]
            seen[t - 1] = state
        return seen, state
    """,
    "the last element of a list": """
        path = [v[-1]]
        for row in reversed(r.unbind(0)):
            path.append(torch.tanh(path[-1] + row))
        return torch.stack(path[::-1], dim=1)
    """,
    "a pair that goes from step to step": """
        def cell(x, state):
            h, c = state
            c = c * 0.5 + x
            return torch.tanh(c) + h * 0.1, c
        state = (torch.zeros_like(r[0]), v[0])
        ys = []
        for row in r.unbind(0):
            state = cell(row, state)
            ys.append(state[0])
        return torch.stack(ys), state
    """,
    "a number that a tensor replaces": """
        total = 1
        for t in range(r.shape[0]):
            total = total * d[t] + r[t]
        return total
    """,
}
FORMS |= {
    "filled, each step reads the one before": """
        out = torch.empty(r.shape[0], r.shape[1])
        out[0] = v[0]
        for t in range(1, r.shape[0]):
            kept = torch.sigmoid(r[t])
            out[t] = kept * out[t - 1] + v[t]
        return out, out[-1]
    """,
    "filled, and its first row's source changes": """
        out = torch.empty_like(r)
        h = v[0]
        out[0] = h
        h = h * 2
        for t in range(1, r.shape[0]):
            out[t] = d[t] * out[t - 1] + h
        return out
    """,
    "filled at the next step": """
        steps = r.shape[0]
        out = r.new_zeros(steps + 1, r.shape[1])
        out[0] = 1.0
        for t in range(steps):
            out[t + 1] = torch.tanh(out[t]) * d[t] + r[t]
        return out[1:], out[-1]
    """,
    "filled along another dimension, from zeros": """
        steps, width = r.shape
        out = torch.zeros_like(r)
        for t in range(1, width):
            out[:, t] = 0.5 * out[:, t - 1] + r[:, t]
        return out * 2
    """,
}
LEFT = {
    "filled, and the row before is read once more": """
        out = torch.zeros_like(r)
        rows = []
        for t in range(1, r.shape[0]):
            out[t] = out[t - 1] + r[t]
            rows.append(out[t - 1] * 2)
        return out, torch.stack(rows)
    """,
    "filled to a part, each step reads the one before": """
        out = torch.zeros(r.shape[0] + 2, r.shape[1])
        for t in range(1, r.shape[0]):
            out[t] = out[t - 1] + r[t]
        return out
    """,
    "filled, each step reads the one before and the first": """
        out = torch.zeros_like(r)
        out[0] = v[0]
        for t in range(1, r.shape[0]):
            out[t] = out[t - 1] + out[0] * r[t]
        return out
    """,
    "a list that is read as it grows": """
        out = [r[0]]
        for t in range(r.shape[0]):
            out.insert(0, out[0] + r[t])
        return torch.stack(out)
    """,
    "a filled tensor that the next step reads": """
        out = torch.zeros(r.shape[0] + 1, r.shape[1])
        for t in reversed(range(r.shape[0])):
            out[t] = r[t] + 0.9 * out[t + 1]
        return out[:-1]
    """,
    "a filled tensor that all but the last step read": """
        out = torch.zeros_like(r)
        for t in reversed(range(r.shape[0])):
            follows = v[-1] if t == r.shape[0] - 1 else out[t + 1]
            out[t].copy_(r[t] + d[t] * follows)
        return out
    """,
    "a list beside another of a longer name": """
        path, my_path = [r[0]], [v[0]]
        for t in range(r.shape[0]):
            path.append(torch.tanh(path[-1] + r[t]) + my_path[-1])
        return torch.stack(path)
    """,
    "a list that is used backwards": """
        out = []
        for t in range(r.shape[0]):
            out.insert(0, torch.sin(r[t]))
        return out[0] + out[1]
    """,
    "the counter is a number": """
        total = r[0]
        for t in reversed(range(r.shape[0])):
            total = total * d[t] + t
        return total
    """,
}


def run(statements: list[ast.stmt], *inputs: torch.Tensor) -> object:
    names: dict[str, object] = {"torch": torch}
    exec("def forward(r, d, v):\n" + textwrap.indent("\n".join(map(ast.unparse, statements)), "    "), names)
    return names["forward"](*inputs)  # type: ignore[operator]


def parts(text: str) -> tuple[list[ast.stmt], ast.For, list[ast.stmt]]:
    statements = ast.parse(textwrap.dedent(text)).body
    at = next(i for i, s in enumerate(statements) if isinstance(s, ast.For))
    return statements[:at], statements[at], statements[at + 1 :]  # type: ignore[return-value]


@pytest.mark.parametrize("name", [*FORMS, *LEFT])
def test_one_form_computes_the_same(name: str) -> None:
    torch.manual_seed(1)
    inputs = torch.randn(7, 5), torch.rand(7, 5), torch.randn(8, 5)
    before, loop, after = parts({**FORMS, **LEFT}[name])
    wanted = run([*before, loop, *after], *inputs)
    before, loop, after = with_one_form(*parts({**FORMS, **LEFT}[name]))
    torch.testing.assert_close(run([*before, loop, *after], *inputs), wanted, rtol=1e-6, atol=1e-6)
    if name in FORMS:
        assert ast.unparse(loop.iter).startswith("range(")
        nodes = list(ast.walk(loop))
        assert not any(isinstance(n, ast.If | ast.IfExp) for n in nodes)
        assert not any(isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store) for n in nodes)


def test_advantages_from_the_last_step_to_the_first_are_one_kernel(quick: Judge) -> None:
    body = textwrap.indent(textwrap.dedent(FORMS["the last step is another"]), " " * 8)
    given = "def get_inputs(): return [torch.randn(9, 40), torch.rand(9, 40), torch.randn(10, 40)]"
    text = f"\nclass Model(nn.Module):\n    def forward(self, r, d, v):{body}\n{given}\ndef get_init_inputs(): return []\n"
    candidate = next(Compiler().write(problem(text), 1))
    assert "for _ in tl.range(0, steps" in candidate.source
    verdict = quick.judge(problem(text), candidate)
    assert verdict.correct, verdict.message


SCAN = """
class Model(nn.Module):
    def __init__(self, dim, state):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.a = nn.Parameter(-torch.rand(dim, state))
    def forward(self, x, dt, b):
        u = self.norm(x).transpose(1, 2)
        state = x.new_zeros(x.size(0), x.size(2), b.size(1))
        ys = []
        for t in range(x.size(1)):
            state = state * torch.exp(dt[..., t, None] * self.a) + u[..., t, None] * b[:, None, :, t]
            ys.append(state.sum(-1))
        return torch.stack(ys, -1)
batch, length, dim, state = 2, 9, 20, 6
def get_inputs(): return [torch.randn(batch, length, dim), torch.rand(batch, dim, length), torch.randn(batch, state, length)]
def get_init_inputs(): return [dim, state]
"""


def test_a_scan_over_the_last_dimension_behind_a_norm_is_one_kernel(quick: Judge) -> None:
    candidate = next(Compiler().write(problem(SCAN), 1))
    assert "for _ in tl.range(0, steps" in candidate.source
    verdict = quick.judge(problem(SCAN), candidate)
    assert verdict.correct, verdict.message


FARTHEST = """
class Model(nn.Module):
    def __init__(self, centres):
        super().__init__()
        self.centres = centres
    def forward(self, xyz):
        rows = torch.arange(xyz.size(0), device=xyz.device)
        distance = torch.full(xyz.shape[:2], 1e10, device=xyz.device)
        current = torch.zeros(xyz.size(0), dtype=torch.long, device=xyz.device)
        chosen = []
        for _ in range(self.centres):
            chosen.append(current)
            distance = torch.minimum(distance, (xyz - xyz[rows, current].unsqueeze(1)).square().sum(-1))
            current = distance.argmax(-1)
        return torch.stack(chosen, 1)
batch, points, centres = 3, 100, 70
def get_inputs(): return [torch.randn(batch, points, 3)]
def get_init_inputs(): return [centres]
"""


def test_a_loop_of_many_steps_stays_one_where_it_goes_over_no_dimension(quick: Judge) -> None:
    candidate = next(Compiler().write(problem(FARTHEST), 1))
    assert candidate.source.count("def time_loop_kernel") == 1
    verdict = quick.judge(problem(FARTHEST), candidate)
    assert verdict.correct, verdict.message
