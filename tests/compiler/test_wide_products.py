"""Products in float32 of what was converted from half precision."""

from __future__ import annotations

import pytest
from compiled import problem

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options

CONVERTED = """
class Model(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.fc = nn.Linear(width, out, dtype=torch.bfloat16)
    def forward(self, x):
        return {forward}
rows, width, out = {rows}, 512, 1024
def get_inputs(): return [torch.rand(rows, width).bfloat16()]
def get_init_inputs(): return [width, out]
"""
FLOAT = "x.float() @ self.fc.weight.float().t()"


@pytest.mark.parametrize(
    ("forward", "rows", "wide"),
    [
        (FLOAT, 4096, 2),
        ("F.linear(x.float(), self.fc.weight.float(), self.fc.bias.float())", 4096, 2),
        (FLOAT, 64, 1),  # small: a library's at known sizes
        ("(x.float() + 1e-3) @ self.fc.weight.float().t()", 4096, 0),
        ("x.float() @ self.fc.weight.half().float().t()", 4096, 0),
    ],
)  # fmt: skip
def test_operands_are_read_as_they_were(forward: str, rows: int, wide: int) -> None:
    text = compiled(problem(CONVERTED.format(forward=forward, rows=rows)), Options(fixed=True, mixed=True))
    assert text.count(" = wide_matmul(") + text.count("return wide_matmul(") == wide
