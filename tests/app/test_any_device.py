"""Operators of one device in the graphs of torch.compile, as every device knows them."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from kernelllm.app.dynamo.any_device import decomposed, partitioned
from kernelllm.app.dynamo.graph_parts import split_results
from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options
from kernelllm.core.types import Problem
from kernelllm.problems.graphs.graph_problem import graph_problem

aten = torch.ops.aten


class Graph:
    """A graph of operators on tensors of a GPU that need not be there."""

    def __init__(self) -> None:
        self.graph = fx.Graph()
        self.mode = FakeTensorMode()

    def given(self, name: str, *shape: int) -> fx.Node:
        node = self.graph.placeholder(name)
        with self.mode:
            node.meta["val"] = FakeTensor(self.mode, torch.empty(shape, dtype=torch.bfloat16, device="meta"), torch.device("cuda:0"))
        return node

    def call(self, target: Any, *args: Any) -> fx.Node:
        node = self.graph.call_function(target, args)
        with self.mode:
            node.meta["val"] = target(*fx.node.map_arg(args, lambda n: n.meta["val"]))
        return node


def test_a_norm_s_statistics_have_the_dtype_that_they_have_on_the_gpu() -> None:
    g = Graph()
    x, weight, bias, grad = g.given("x", 8, 16), g.given("weight", 16), g.given("bias", 16), g.given("grad", 8, 16)
    norm = g.call(aten.native_layer_norm.default, x, [16], weight, bias, 1e-5)
    out, mean, rstd = (g.call(operator.getitem, norm, i) for i in range(3))
    back = g.call(aten.native_layer_norm_backward.default, grad, x, [16], mean, rstd, weight, bias, [True, True, True])
    g.graph.output((out, mean, rstd, *(g.call(operator.getitem, back, i) for i in range(3))))
    module = decomposed(fx.GraphModule(nn.Module(), g.graph))
    problem = graph_problem(module, [n.meta["val"] for n in module.graph.find_nodes(op="placeholder")], name="norm")
    assert "native_layer_norm" not in problem.source
    namespace: dict[str, Any] = {}
    exec(problem.source, namespace)
    torch.manual_seed(0)
    values = [torch.randn(8, 16), torch.randn(16), torch.randn(16), torch.randn(8, 16)]
    found = namespace["Model"]()(*(v.bfloat16() for v in values))
    assert [t.dtype for t in found] == [torch.bfloat16, torch.float32, torch.float32, *[torch.bfloat16] * 3]
    exact = [v.bfloat16().float().requires_grad_() for v in values]
    expected = F.layer_norm(exact[0], (16,), exact[1], exact[2])
    wanted = [expected, exact[0].mean(-1, keepdim=True), *torch.autograd.grad(expected, exact[:3], exact[3])]
    for one, two in zip((found[0], found[1], *found[3:]), wanted, strict=True):
        torch.testing.assert_close(one.float(), two, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("causal", [True, False])
def test_attention_keeps_its_inputs_alone_for_the_backward(causal: bool) -> None:
    from torch._dynamo.backends.common import aot_autograd

    graphs: list[fx.GraphModule] = []

    def take(graph: fx.GraphModule, inputs: Any) -> Any:
        from torch._functorch.aot_autograd import make_boxed_func

        graphs.append(graph)
        return make_boxed_func(graph.forward)

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.view(2, 5, 2, 8).transpose(1, 2) for t in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).reshape(2, 5, 16)

    torch._dynamo.reset()
    fast = torch.compile(attend, backend=aot_autograd(fw_compiler=take, bw_compiler=take, partition_fn=partitioned))
    values = [torch.randn(2, 5, 16, requires_grad=True) for _ in range(3)]
    for run in (fast, attend):
        run(*values).square().sum().backward()
    for value in values:  # both have added the same
        one = torch.autograd.grad(attend(*values).square().sum(), value)[0]
        torch.testing.assert_close(value.grad, 2 * one)
    forward, backward = graphs
    assert len(forward.graph.output_node().args[0]) == 4  # the result, and query, key, value
    source = graph_problem(backward, [n.meta["val"] for n in backward.graph.find_nodes(op="placeholder")], name="attention").source
    assert "attention_gradients(" in source
    assert "_scaled_dot_product" not in source
    torch._dynamo.reset()
    if causal:  # what may leave attention to torch differentiates it all the same
        assert "attention_kernel" in compiled(Problem(name="attention", source=source), Options(extern="allow"))


def test_groups_of_heads_are_asked_for() -> None:
    def attend(q: torch.Tensor, k: torch.Tensor) -> Any:
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, k)[0]

    inputs = [torch.randn(2, heads, 5, 8) for heads in (4, 2)]
    source = graph_problem(make_fx(attend, tracing_mode="fake")(*inputs), inputs, name="attention").source
    assert "enable_gqa=True" in source


def test_tensors_that_a_graph_holds_are_further_inputs() -> None:
    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shift = torch.arange(3.0)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x * 2 + self.shift, x

    graph = fx.symbolic_trace(Shifted())
    parts = split_results(graph)
    x = torch.ones(3)
    assert [t.tolist() for t in parts.constants] == [[0.0, 1.0, 2.0]]
    given = [x, *parts.constants]
    torch.testing.assert_close(parts.joined(given, parts.computed(*given), parts.views(*given)), [2 + graph.shift, x])
    torch.testing.assert_close(graph(x)[0], 2 + graph.shift)
