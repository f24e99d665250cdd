"""Graphs of live modules as problems: the source stands alone and computes what the graph computes."""

from __future__ import annotations

import operator

import pytest
import torch
from torch import fx, nn
from torch.fx.experimental.proxy_tensor import make_fx

from kernelllm.core.errors import CaptureError
from kernelllm.problems import sizes
from kernelllm.problems.graphs.graph_problem import graph_problem
from kernelllm.problems.instance import Instance


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(6, 6) for _ in range(2)])
        self.norm = nn.BatchNorm1d(6)
        self.head = nn.Linear(6, 6, bias=False)
        self.head.weight = self.blocks[0].weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = torch.relu(block(x))
        return self.head(self.norm(x)) + torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])


def test_state_has_its_names_and_gives_the_same_result() -> None:
    net, x = Net().eval(), torch.randn(4, 6)
    state = {**dict(net.named_parameters(remove_duplicate=False)), **dict(net.named_buffers())}
    unique = {id(t): (n, t) for n, t in reversed(state.items())}
    names = [n for n, _ in unique.values()]

    def flat(x: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(net, dict(zip(names, values, strict=True)), (x,))

    graph = make_fx(flat)(x, *(t for _, t in unique.values()))
    problem = graph_problem(graph, [x, *(t for _, t in unique.values())], name="net", state=state)
    model = Instance(problem).model(0)
    assert set(model.state_dict()) == set(net.state_dict())
    assert model.head.weight is model.blocks[0].weight
    model.load_state_dict(net.state_dict())
    torch.testing.assert_close(model(x), net(x))


def test_symbolic_sizes_vary_and_inputs_are_like_those_seen() -> None:
    def forward(ids: torch.Tensor, table: torch.Tensor, mask: torch.Tensor, wide: torch.Tensor, n: int) -> tuple[torch.Tensor, int]:
        x = table[ids] + wide
        return torch.where(mask, x @ x.transpose(1, 2), float("-inf")).amax(-1), n * 2

    lower = torch.ones(10, 10, dtype=torch.bool).tril()
    inputs = [torch.randint(3, 9, (12, 10)), torch.randn(9, 6), lower, torch.rand(6, 12, 10).permute(1, 2, 0), 5]
    problem = graph_problem(make_fx(forward, tracing_mode="symbolic")(*inputs), inputs, name="graph")
    known = sizes.constants(problem)
    assert sorted(known.values())[-2:] == [10, 12]
    drawn = Instance(problem).inputs(0)
    assert drawn[3].stride() == inputs[3].stride()
    assert int(drawn[0].min()) >= 3
    assert int(drawn[0].max()) < 9
    assert torch.equal(drawn[2], lower)
    rows = next(name for name, value in known.items() if value == 12)
    other = Instance(problem, {rows: 7})
    result, number = other.model(0)(*other.inputs(1))
    assert result.shape == (7, 10)
    assert number == 10


def test_masks_of_the_lowest_number_are_drawn_and_held() -> None:
    lowest = torch.finfo(torch.float32).min
    mask = torch.full((5, 5), lowest).triu(1)
    held = torch.full((5,), lowest)
    graph = make_fx(lambda x, m, h: (x + m + h).softmax(-1))(torch.randn(5, 5), mask, held)
    problem = Instance(graph_problem(graph, [torch.randn(5, 5), mask, held], name="masked", state={"held": held}))
    assert torch.equal(problem.inputs(0)[1], mask)
    assert "held" in problem.model(0).state_dict()


def test_labels_that_a_loss_ignores_are_drawn_as_such() -> None:
    labels = torch.randint(2, 9, (4, 10))
    labels[:, ::3] = -100
    logits = torch.randn(40, 9)
    graph = make_fx(lambda x, y: torch.nn.functional.cross_entropy(x, y.flatten()), tracing_mode="fake")(logits, labels)
    problem = Instance(graph_problem(graph, [logits, labels], name="loss"))
    drawn = problem.inputs(0)
    assert torch.isfinite(problem.model(0)(*drawn))
    assert set(drawn[1].flatten().tolist()) - {-100} <= set(range(2, 9))
    assert 5 <= int((drawn[1] == -100).sum()) <= 30


def test_a_graph_with_no_text_is_refused() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(operator.add, (graph.call_module("inner", (x,)), 1)))
    with pytest.raises(CaptureError, match="calls the module inner"):
        graph_problem(fx.GraphModule({"inner": nn.ReLU()}, graph), [torch.ones(3)], name="graph")
