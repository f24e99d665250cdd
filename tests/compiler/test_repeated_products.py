"""Products that a forward computes more than once."""

from __future__ import annotations

import pytest
import torch
from compiled import lowered, problem

from kernelllm.compiler.capture.rewrites.repeated_products import merge
from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options

TWICE = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
    def forward(self, x, y):
        return torch.tanh(y + self.bias({first})) * self.bias({second})
rows, width = 64, 32
def get_inputs(): return [torch.rand(rows, width), torch.rand(rows, width)]
def get_init_inputs(): return [width]
"""


@pytest.mark.parametrize(
    ("first", "second", "products"),
    [("x * 2", "x * 2", 2), ("x * 2", "x * 3", 4), ("x * 0.0", "x * -0.0", 4), ("F.dropout(x)", "F.dropout(x)", 4)],
)  # fmt: skip
def test_a_product_of_the_same_is_computed_once(first: str, second: str, products: int) -> None:
    source = compiled(problem(TWICE.format(first=first, second=second)), Options(extern="allow"))
    forward = source[source.index("    def forward(") :]
    assert forward.count("torch.mm(") + forward.count("torch.addmm(") == products


READ_TWICE = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one, self.two = nn.Linear(2 * width, width, dtype={kind}), nn.Linear(2 * width, 3 * width, dtype={kind})
    def forward(self, x, y):
        first = self.one({first})
        return self.two({second}) * first.repeat(1, 3)
rows, width = 64, 32
def get_inputs(): return [torch.rand(rows, width), torch.rand(rows, width)]
def get_init_inputs(): return [width]
"""
MISH = "F.mish(torch.cat((x, y), 1))"


@pytest.mark.parametrize(
    ("first", "second", "stored"), [(MISH, MISH, 1), (MISH + ".half()", MISH + ".half()", 1), (MISH, MISH + " * 2", 2)]
)  # fmt: skip
def test_what_products_read_is_stored_once(first: str, second: str, stored: int) -> None:
    body = READ_TWICE.format(first=first, second=second, kind="torch.half" if "half" in first else None)
    wrapper = lowered(body, Options(extern="allow", symbolic=False, mixed=True)).wrapper
    ahead = [kernel for kernel in wrapper.kernels.values() if "aten.repeat" not in kernel.ops]
    assert sum(p.startswith(("out_ptr", "in_out_ptr")) for kernel in ahead for p in kernel.params) == stored


def test_what_is_computed_behind_a_write_is_computed_again() -> None:
    graph = torch.fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    sums = [graph.call_function(torch.ops.aten.sum.dim_IntList, (x, [1])) for _ in range(2)]
    graph.call_function(torch.ops.aten.copy_.default, (x, y))
    sums.append(graph.call_function(torch.ops.aten.sum.dim_IntList, (x, [1])))
    graph.output(tuple(graph.call_function(torch.ops.aten.neg.default, (one,)) for one in sums))
    merge(torch.fx.GraphModule(torch.nn.Module(), graph))
    assert [node.args[0] for node in graph.output_node().args[0]] == [sums[0], sums[0], sums[2]]
