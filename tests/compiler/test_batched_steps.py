"""Steps of an unrolled loop: what they compute by themselves is computed for all at once, with the same result."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from kernelllm.compiler.capture import intercept
from kernelllm.compiler.capture.rewrites import batched_steps
from kernelllm.compiler.options import Options

PRODUCTS = (torch.ops.aten.bmm.default, torch.ops.aten.mm.default, torch.ops.aten.addmm.default)


def chunks(x: Tensor, y: Tensor) -> Tensor:
    """Linear attention: two of the three products of a step are for it alone."""
    state, outs = torch.zeros(2, 3, 4, 4), []
    for i in range(x.shape[2]):
        own = (x[:, :, i] @ y[:, :, i].mT).tril() @ y[:, :, i]
        outs.append(own + x[:, :, i] @ state)
        state = state * y[:, :, i, -1].exp().unsqueeze(-1) + x[:, :, i].mT @ y[:, :, i]
    return torch.stack(outs, 2)


def corrected(x: Tensor, y: Tensor) -> Tensor:
    """A delta rule: the products with the state follow each other, and what they read is made at once."""
    state, out = torch.ones(2, 3, 4, 4) / 8, torch.zeros_like(x)
    for i in range(x.shape[2]):
        new = y[:, :, i] - (x[:, :, i] * 0.25) @ state
        out[:, :, i] = x[:, :, i] @ state + (x[:, :, i] @ y[:, :, i].mT) @ new
        state = 0.5 * state + (y[:, :, i] / 8).mT @ new
    return out


def slices(x: Tensor, y: Tensor) -> Tensor:
    """Parts by slices and by split, joined by a concatenation."""
    rows, weight = x.reshape(30, -1), y[0, 0, 0]
    parts = y.reshape(30, -1).split(5)
    return torch.cat([rows[5 * i : 5 * i + 5, :4] @ weight[:4].relu() + parts[i][:, :4] for i in range(6)])


def rows_of_a_linear(x: Tensor, y: Tensor) -> Tensor:
    flat = x.flatten(0, 1)
    return torch.stack([torch.nn.functional.linear(flat[:, i, 0], y[0, 0, 0, :4], y[0, 0, 0, 0]).tanh() for i in range(5)])


def each_needs_the_one_before(x: Tensor, y: Tensor) -> Tensor:
    h, outs = x[:, 0, 0], []
    for i in range(5):
        h = torch.tanh(h @ y[:, 0, i, :4])
        outs.append(h)
    return torch.stack(outs)


@pytest.mark.parametrize(("forward", "before", "after"), [
    (chunks, 20, 4), (corrected, 25, 12), (slices, 6, 1), (rows_of_a_linear, 5, 1), (each_needs_the_one_before, 5, 5),
])  # fmt: skip
def test_it_is_what_the_loop_computes(forward: Callable[[Tensor, Tensor], Tensor], before: int, after: int) -> None:
    torch.manual_seed(0)
    given = torch.randn(2, 3, 5, 4, 4), torch.randn(2, 3, 5, 4, 4)
    table = intercept.decompositions(Options())
    graph = make_fx(torch.func.functionalize(forward), table, tracing_mode="fake")(*given)
    assert sum(n.target in PRODUCTS for n in graph.graph.nodes) == before
    batched_steps.join(graph, Options())
    graph.graph.lint()
    graph.recompile()
    assert sum(n.target in PRODUCTS for n in graph.graph.nodes) == after
    torch.testing.assert_close(graph(*given), forward(*given))


def test_gradients_of_parts_are_computed_at_once() -> None:
    def forward(x: Tensor, grad: Tensor) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            outs = [torch.tanh(x[:, i] @ grad[0]) for i in range(x.shape[1])]
            return torch.autograd.grad(torch.stack(outs, 1), x, grad)

    given = torch.randn(5, 5, 5), torch.randn(5, 5, 5)
    graph = make_fx(forward, intercept.decompositions(Options()), tracing_mode="fake")(*given)
    assert sum(n.target in PRODUCTS for n in graph.graph.nodes) == 10
    batched_steps.join(graph, Options())
    graph.graph.lint()
    graph.recompile()
    assert sum(n.target in PRODUCTS for n in graph.graph.nodes) == 2
    assert "select_scatter" not in str(graph.graph)
    torch.testing.assert_close(graph(*given), forward(*given))
