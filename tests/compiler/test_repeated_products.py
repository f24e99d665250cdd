"""Products that a forward computes more than once."""

from __future__ import annotations

import pytest
from compiled import problem

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
