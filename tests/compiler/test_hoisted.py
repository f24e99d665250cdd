"""Products of what a loop reads at its steps are computed once, ahead of it."""

from __future__ import annotations

import ast
import textwrap

import pytest
import torch
from compiled import problem

from kernelllm.compiler.compiler_writer import Compiler
from kernelllm.compiler.loops.hoisted import with_products_ahead
from kernelllm.judge import Judge

STEPS = {
    "a layer of a slice by its name": "row = x[:, t, :]\nh = torch.tanh(self.into(row) + self.again(h))",
    "a function": "h = torch.tanh(F.linear(x[:, t], self.weight) + h)",
    "a matrix": "h = torch.relu(x[:, t] @ self.weight.t() + h @ self.square)",
    "a cell with gates": "h = self.gru(x[:, t], h)",
    "a cell of two states": "h, c = self.lstm(x[:, t], (h, c))",
}
KEPT = {
    "what the step computes": "row = x[:, t] * h.sum()\nh = torch.tanh(self.into(row) + h)",
    "a layer that is no product": "h = torch.tanh(self.norm(x[:, t]).sum(-1, keepdim=True) + h)",
    "a matrix that changes": "w = self.weight * h.mean()\nh = torch.tanh(x[:, t] @ w.t() + h)",
}


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.again, self.norm = torch.nn.Linear(6, 5), torch.nn.Linear(5, 5, bias=False), torch.nn.LayerNorm(6)
        self.weight, self.square = (torch.nn.Parameter(torch.randn(5, n) * 0.3) for n in (6, 5))
        self.gru, self.lstm = torch.nn.GRUCell(6, 5), torch.nn.LSTMCell(6, 5, bias=False)


def run(statements: list[ast.stmt], model: Layers, x: torch.Tensor) -> torch.Tensor:
    scope: dict = {"torch": torch, "F": torch.nn.functional}
    exec("def forward(self, x):\n" + textwrap.indent("\n".join(map(ast.unparse, statements)), "    ") + "\n    return h", scope)
    result: torch.Tensor = scope["forward"](model, x)
    return result


@pytest.mark.parametrize("name", [*STEPS, *KEPT])
def test_the_same_is_computed_with_fewer_products_in_a_step(name: str) -> None:
    torch.manual_seed(0)
    model, x, body = Layers(), torch.randn(3, 7, 6), {**STEPS, **KEPT}[name]
    start = ast.parse("h = x.new_zeros(x.shape[0], 5)\nc = h + 1").body
    loop = ast.parse("for t in range(x.shape[1]):\n" + textwrap.indent(body, "    ")).body[0]
    wanted = run([*start, loop], model, x)
    layers = {"self": model} | {f"self.{path}": layer for path, layer in model.named_modules() if path}
    before = with_products_ahead(start, loop, lambda: layers)
    torch.testing.assert_close(run([*before, loop], model, x), wanted)
    assert (len(before) > len(start)) == (name in STEPS)


def test_a_cell_by_hand_has_one_product_in_a_step(quick: Judge) -> None:
    text = """
class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.cell = nn.LSTMCell(width, hidden)
    def forward(self, x):
        h = x.new_zeros(x.size(0), self.cell.hidden_size)
        c, outs = torch.zeros_like(h), []
        for t in range(x.size(1)):
            h, c = self.cell(x[:, t], (h, c))
            outs.append(h)
        return torch.stack(outs, dim=1)
batch, steps, width, hidden = 4, 9, 24, 200
def get_inputs(): return [torch.randn(batch, steps, width)]
def get_init_inputs(): return [width, hidden]
"""
    candidate = next(Compiler().write(problem(text), 1))
    step = candidate.source.partition("    def step(")[2].partition("    def ")[0]
    assert step.count("matmul(") == 1
    verdict = quick.judge(problem(text), candidate)
    assert verdict.correct, verdict.message
