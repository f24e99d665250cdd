"""Long reductions: two plain kernels, along dimensions that the module has."""

from __future__ import annotations

import ast
from pathlib import Path

from compiled import IMPORTS, problem
from emitted import agrees_with_reference, written

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options

STATISTICS = """
class Model(nn.Module):
    def forward(self, x):
        half = x.half()
        var, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0)
        return x.sum(), half.mean(), x.amax(), x.min(), x.sum((0, 2, 3), keepdim=True), var, mean, (x > 0).sum()
batch, channels, height, width = 600, 4, 32, 64
def get_inputs(): return [torch.randn(batch, channels, height, width) + 1]
def get_init_inputs(): return []
"""


def kernels(text: str) -> list[ast.FunctionDef]:
    return [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name.endswith("_kernel")]


def test_a_loss_is_a_sum_of_its_rows_sums() -> None:
    found = kernels(written("hinge_loss"))
    assert len(found) == 2
    assert not any(isinstance(n, ast.FloorDiv | ast.Mod) for kernel in found for n in ast.walk(kernel))


def test_statistics_in_two_stages_at_any_size(tmp_path: Path) -> None:
    text = compiled(problem(STATISTICS), Options())
    assert "splits" not in text
    (tmp_path / "statistics.py").write_text(IMPORTS + STATISTICS)
    (tmp_path / "new.py").write_text(text)
    sizes: list[dict[str, object]] = [{"batch": 3, "height": 5, "width": 7}, {"batch": 1, "height": 9, "width": 2}]
    agrees_with_reference(tmp_path, [("statistics", str(tmp_path / "new.py"), sizes)])
