"""Steps of loops that a graph has one after the other are loops again in a problem's text, and compute the same."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from kernelllm.problems import sizes
from kernelllm.problems.graphs.graph_problem import graph_problem
from kernelllm.problems.instance import Instance

STEPS = 9


def written(forward: Callable[..., Any], *inputs: torch.Tensor, symbolic: bool = False) -> str:
    """The text of a forward's graph, which computes what the forward does."""
    problem = graph_problem(make_fx(forward, tracing_mode="symbolic" if symbolic else "real")(*inputs), inputs, name="steps")
    torch.testing.assert_close(Instance(problem).model(0)(*inputs), forward(*inputs), rtol=1e-6, atol=1e-6)
    return problem.source


def heads(source: str) -> list[str]:
    """The loops of a text."""
    return re.findall(r"for \w+ in range\(.*\):", source)


def recurrence(x: torch.Tensor, decay: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    state, out = torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        state = state * decay[:, t] + x[:, t]
        out.append(torch.tanh(state))
    return torch.stack(out, 1), state


def filled(x: torch.Tensor, decay: torch.Tensor) -> torch.Tensor:
    state, out = torch.zeros_like(x[:, 0]), torch.empty_like(x)
    for t in range(x.shape[1]):
        state = state * decay[:, t] + x[:, t]
        out[:, t] = state.exp()
    return out


def momentum(x: torch.Tensor, decay: torch.Tensor) -> torch.Tensor:
    state, total = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])
    for t in range(x.shape[1]):
        new = torch.tanh(state * decay[:, t] + x[:, t])
        total = total + (new - state) * decay[:, t]
        state = new
    return total


def backwards(x: torch.Tensor, decay: torch.Tensor) -> torch.Tensor:
    state = torch.ones_like(x[:, 0])
    for t in reversed(range(x.shape[1])):
        state = torch.sigmoid(state + x[:, t]) * decay[:, t]
    return state


def windows(x: torch.Tensor, decay: torch.Tensor) -> torch.Tensor:
    state, out = torch.zeros_like(x[:, :2]), []
    for t in range(x.shape[1] - 1):
        state = torch.tanh(state + x[:, t : t + 2] * 0.5)
        out.append(state * decay[:, t : t + 1])
    return torch.cat(out, 1)


def first_and_last_apart(x: torch.Tensor, decay: torch.Tensor) -> torch.Tensor:
    """The first step is another one; of the last step, what only another step would read is not in the graph."""
    state, out = x[:, 0], [x[:, 0]]
    for t in range(1, x.shape[1]):
        out.append(torch.tanh(state) + decay[:, t])
        state = (state * decay[:, t] + x[:, t]).sin()
    return torch.stack(out, 1)


def substituted(x: torch.Tensor, decay: torch.Tensor) -> torch.Tensor:
    a = (x.mT @ x).tril(-1) / 50
    for i in range(1, a.shape[-1]):
        row, part = a[:, i, :i].clone(), a[:, :i, :i].clone()
        a[:, i, :i] = row + (row.unsqueeze(-1) * part).sum(-2)
    return a @ decay.mT


FORMS = [recurrence, filled, momentum, backwards, windows, first_and_last_apart, substituted]


@pytest.mark.parametrize("forward", FORMS)
def test_steps_are_a_loop(forward: Callable[..., Any]) -> None:
    source = written(forward, torch.randn(2, STEPS, 8), torch.rand(2, STEPS, 8))
    assert len(heads(source)) == 1
    assert len(source.splitlines()) < 60


def test_a_last_step_that_would_reach_too_far_is_no_step() -> None:
    def forward(x: torch.Tensor, decay: torch.Tensor) -> torch.Tensor:
        state, out = x[:, 0], []
        for t in range(STEPS):
            out.append(torch.tanh(state) + decay[:, t])
            state = (state * decay[:, t] + x[:, t + 1]).sin() if t + 1 < STEPS else state
        return torch.stack(out, 1)

    assert len(heads(written(forward, torch.randn(2, STEPS, 8), torch.rand(2, STEPS, 8)))) == 1


def test_a_last_step_that_would_write_is_no_step() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        state, total = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])
        for t in range(STEPS):
            total = (total + state).sin() + x[:, t]
            if t + 1 < STEPS:
                state.add_(x[:, t]).mul_(0.5)
        return total + state

    written(forward, torch.randn(2, STEPS, 8))


def test_a_loop_over_a_dimension_says_so() -> None:
    assert heads(written(recurrence, torch.randn(2, STEPS, 8), torch.rand(2, STEPS, 8)))[0].endswith(".shape[1]):")


def test_a_number_of_steps_that_a_dimension_has_by_chance_stays_a_number() -> None:
    def nine_steps(x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros_like(x[:, 0])
        for t in range(STEPS):
            state = (state * 0.9 + x[:, t]).tanh()
        return state

    x = torch.randn(3, STEPS, 8)
    problem = graph_problem(make_fx(nine_steps, tracing_mode="symbolic")(x), [x], name="nine")
    assert heads(problem.source) == [f"for i in range({STEPS}):"]
    rows = next(name for name, value in sizes.constants(problem).items() if value == STEPS)
    other = Instance(problem, {rows: STEPS + 5})
    (longer,) = other.inputs(0)
    assert longer.shape[1] == STEPS + 5
    torch.testing.assert_close(other.model(0)(longer), nine_steps(longer))


def test_sizes_that_are_not_known_may_count() -> None:
    def chunks(x: torch.Tensor) -> torch.Tensor:
        out, state = [], torch.zeros_like(x[:, 0])
        for begin in range(0, 36, 4):
            end = torch.sym_min(x.shape[1], begin + 4)
            part = x[:, begin:end]
            state = state + part.sum(1) / (end - begin)
            out.append(part * state.unsqueeze(1))
        return torch.cat(out, 1)

    assert len(heads(written(chunks, torch.randn(2, 35, 3), symbolic=True))) == 1


@pytest.mark.parametrize("change", ["a result", "a constant", "an operator"])
def test_lines_that_are_no_steps_stay(change: str) -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        state, kept = torch.zeros_like(x[:, 0]), x[:, 0]
        for t in range(STEPS):
            factor = 0.5 + (0.01 * t * t if change == "a constant" else 0)
            state = (state * factor + x[:, t]).sin() if change != "an operator" or t % 2 else (state * factor + x[:, t]).cos()
            kept = state if t == 3 and change == "a result" else kept
        return state + kept

    source = written(forward, torch.randn(2, STEPS, 8))
    assert len(heads(source)) == 0


@pytest.mark.parametrize("seed", range(12))
def test_loops_of_any_steps_compute_the_same(seed: int) -> None:
    chosen = random.Random(seed)
    kinds = [chosen.choice(["carry", "slice", "mix", "late", "write", "list"]) for _ in range(chosen.randint(3, 7))]
    offsets = [chosen.choice([0, 0, 1, 2]) for _ in kinds]

    def forward(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        states = [x[:, 0] * 0.5, y[:, 0], x[:, 1]]
        out, made = torch.zeros_like(x), list[torch.Tensor]()
        for t in range(STEPS):
            new = list(states)
            for number, (kind, offset) in enumerate(zip(kinds, offsets, strict=True)):
                at = number % 3
                if kind == "carry":
                    new[at] = (states[at] * 0.7).tanh()
                elif kind == "slice":
                    new[at] = new[(at + 1) % 3] + x[:, t + offset]
                elif kind == "mix":
                    new[at] = (new[at] * y[:, t] + states[(at + 2) % 3]).sin()
                elif kind == "late":
                    new[at] = new[at] - states[at] * 0.3
                elif kind == "write":
                    out[:, t + offset] = new[at]
                else:
                    made.append(new[at] + 1)
            states = new
        return (*states, out, *([torch.stack(made, 1)] if made else []))

    written(forward, torch.randn(2, STEPS + 2, 4), torch.randn(2, STEPS + 2, 4))
