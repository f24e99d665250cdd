"""Products of a step that other steps need nothing of are computed for all steps at once, ahead of the loop and behind it."""

from __future__ import annotations

import ast
import copy
import textwrap

import pytest
import torch
from compiled import problem

from kernelllm.compiler.compiler_writer import Compiler
from kernelllm.compiler.loops.fission import with_fission
from kernelllm.judge import Judge

APART = {
    "joined, the slice first": "h = torch.tanh(self.joined(torch.cat((x[:, t], h), dim=1)))\nout.append(h)",
    "joined, the slice last": "h = torch.tanh(self.turned(torch.cat([h, x[:, t]], -1)))\nout.append(h)",
    "joined, by a name": "both = torch.cat((x[:, t], h), 1)\nh = torch.tanh(self.joined(both))\nout.append(h)",
    "joined for two layers": "both = torch.cat((x[:, t], h), 1)\nh = torch.tanh(self.joined(both))\nout.append(self.joined(both))",
    "with a function": "h = torch.tanh(F.linear(torch.cat((x[:, t], h), 1), self.joined.weight))\nout.append(h)",
    "with matrices": "h = torch.tanh(torch.cat((x[:, t], h), 1) @ self.matrix)\nout.append(h @ self.square)",
    "behind the loop": "h = torch.tanh(h + x[:, t, :5])\ny = self.again(h)\nout.append(torch.relu(y) + h)",
    "behind it, of a slice too": "h = torch.tanh(h + x[:, t, :5])\nout.append(self.again(h) * x[:, t, 1:])",
    "ahead of a layer that is none": "h = torch.tanh(self.into(self.norm(x[:, t])) + self.again(h))\nout.append(h)",
    "a name that is set again": "v = self.into(x[:, t])\nv = v * torch.sigmoid(v)\nh = torch.tanh(v + h)\nv = self.again(h)\nout.append(v)",
    "added in place": "v = self.into(x[:, t]) * 2\nv += h\nh = torch.tanh(v)\nout.append(h)",
    "the last dimension": "h = torch.tanh(self.along(x[:, :, t % 6].t()).t()[:, :5] + h)\nout.append(self.again(h))",
    "a weight for each step": "h = torch.tanh(F.pad(F.linear(x[:, t, :3], x[:2, t, :3]), (0, 3)) + h)\nout.append(h)",
    "two lists": "h = torch.tanh(x[:, t, :5] + self.again(h))\nout.append(self.into(F.pad(h, (0, 1))))\nother.append(h)",
}
WHOLE = {
    "the next step needs it": "h = torch.tanh(x[:, t, :5] + self.again(h))\nout.append(h)",
    "what it was before": "out.append(self.again(h))\nh = torch.tanh(h + x[:, t, :5])",
    "what others see of it": "h += self.into(x[:, t])\nh = torch.tanh(h)\nout.append(h)",
    "what was appended before": "y = self.again(out[-1]) if out else h\nh = torch.tanh(y + x[:, t, :5])\nout.append(h)",
    "a list that the step reads": "h = torch.tanh(h + x[:, t, :5] + len(out))\nout.append(self.again(h))",
    "a question": "if t > 2:\n    h = torch.tanh(self.into(x[:, t]) + h)\nout.append(h)",
}


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.again, self.norm = torch.nn.Linear(6, 5), torch.nn.Linear(5, 5), torch.nn.LayerNorm(6)
        self.joined, self.turned, self.along = torch.nn.Linear(11, 5), torch.nn.Linear(11, 5), torch.nn.Linear(3, 3)
        self.matrix, self.square = (torch.nn.Parameter(torch.randn(n, 5) * 0.3) for n in (11, 5))


def run(statements: list[ast.stmt], model: Layers, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    scope: dict = {"torch": torch, "F": torch.nn.functional}
    exec("def forward(self, x):\n" + textwrap.indent("\n".join(map(ast.unparse, statements)), "    "), scope)
    result: tuple[torch.Tensor, ...] = scope["forward"](model, x)
    return result



@pytest.mark.parametrize("name", [*APART, *WHOLE])
@pytest.mark.parametrize("over", ["range(x.shape[1])", "range(1, 6)"])
def test_the_same_is_computed_with_less_in_a_step(name: str, over: str) -> None:
    torch.manual_seed(0)
    model, x, body = Layers(), torch.randn(3, 7, 6), {**APART, **WHOLE}[name]
    start = ast.parse("h = x.new_zeros(x.shape[0], 5)\nout = []\nother = []").body
    loop = ast.parse(f"for t in {over}:\n" + textwrap.indent(body, "    ")).body[0]
    lists = "torch.stack(out, dim=1), torch.stack(other)" if "other" in body else "torch.stack(out, dim=1)"
    end = ast.parse(f"return {lists}, h").body
    wanted = run([*start, loop, *end], model, x)
    layers = {"self": model} | {f"self.{path}": layer for path, layer in model.named_modules() if path}
    before, apart, after = with_fission(copy.deepcopy(start), copy.deepcopy(loop), copy.deepcopy(end), lambda: layers)
    for one, other in zip(run([*before, apart, *after], model, x), wanted, strict=True):
        torch.testing.assert_close(one, other)
    assert (ast.unparse(apart) != ast.unparse(loop)) == (name in APART)


def test_rows_that_are_joined_are_not_taken_for_columns() -> None:
    model = Layers()
    start = ast.parse("h = x.new_zeros(3, 2, 11)\nout = []").body
    loop = ast.parse("for t in range(x.shape[1]):\n    h = self.joined(torch.cat((x[:, t], h), 1)).tile(1, 1, 3)[:, :2, :11]").body[0]
    layers = {"self": model} | {f"self.{path}": layer for path, layer in model.named_modules() if path}
    before, apart, after = with_fission(start, loop, ast.parse("return h").body, lambda: layers)
    with pytest.raises(RuntimeError):  # so that the loop stays whole
        run([*before, apart, *after], model, torch.randn(3, 4, 2, 11))


def test_a_cell_of_the_file_s_own_has_one_product_in_a_step(quick: Judge) -> None:
    text = """
class Cell(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gates = nn.Linear(width + hidden, 2 * hidden)
    def forward(self, x, state):
        gate, value = self.gates(torch.cat([x, state], dim=-1)).chunk(2, -1)
        return state + torch.sigmoid(gate) * (torch.tanh(value) - state)
class Model(nn.Module):
    def __init__(self, width, hidden, heads, words):
        super().__init__()
        self.cell, self.heads = Cell(width, hidden), heads
        self.head = nn.Linear(hidden, words)
    def forward(self, x, h):
        heads, outs = self.heads, []
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
            h = h.view(h.shape[0], heads, -1).softmax(1).flatten(1)
            outs.append(self.head(h))
        return torch.stack(outs, dim=1)
batch, steps, width, hidden, words = 4, 9, 24, 200, 31
def get_inputs(): return [torch.randn(batch, steps, width), torch.randn(batch, 200)]
def get_init_inputs(): return [width, hidden, 5, words]
"""
    candidate = next(Compiler().write(problem(text), 1))
    step = candidate.source.partition("    def step(")[2].partition("    def ")[0]
    assert step.count("matmul(") == 1
    verdict = quick.judge(problem(text), candidate)
    assert verdict.correct, verdict.message
