"""Tensors made from numbers alone: computed once while compiling, never left to a C++ kernel."""

from __future__ import annotations

from pathlib import Path

from compiled import captured, problem
from emitted import agrees_with_reference

from kernelllm.compiler.compiler_writer import Compiler, compiled
from kernelllm.compiler.options import Options
from kernelllm.core.types import Candidate
from kernelllm.judge import Judge

CONSTANTS = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
    def forward(self, x):
        limit = torch.log(torch.tensor(1.0 / 0.01, device=x.device))
        weights = torch.tensor([0.5, 2.0, 1.0], device=x.device).sqrt()
        table = torch.tensor([[1.0, 2.0, 4.0], [3.0, 5.0, 6.0], [0.0, 1.0, 8.0]]).exp()
        order = torch.tensor([2, 0, 1])
        keep = torch.tensor([True, False, True])
        scaled = x * torch.clamp(self.scale, max=limit).exp()
        return (scaled[..., :3] * weights)[..., order].masked_fill(~keep, -1.0) + table.sum(0), limit
batch, width = 4, 37
def get_inputs():
    return [torch.rand(batch, width)]
def get_init_inputs():
    return [width]
"""


def test_constants_are_computed_while_compiling(tmp_path: Path) -> None:
    (candidate,) = Compiler().write(problem(CONSTANTS, "constants"), 1)
    assert "cpp_fused" not in candidate.source
    assert "4.605170249938965" in candidate.source
    kernels = candidate.source.split("class ModelNew")[0]
    assert "tl.log" not in kernels
    assert "sqrt" not in kernels
    (tmp_path / "constants.py").write_text(problem(CONSTANTS).source, encoding="utf-8")
    (tmp_path / "written.py").write_text(candidate.source, encoding="utf-8")
    agrees_with_reference(tmp_path, [("constants", str(tmp_path / "written.py"), [{"batch": 3, "width": 41}])])


INFINITE = """
class Model(nn.Module):
    def forward(self, x):
        none = torch.full((3, 4), float("-inf"), device=x.device)
        return torch.logaddexp(none, none) * 0.5, torch.logsumexp(torch.where(x > 0, x, none), 1), torch.logaddexp(none, x)
def get_inputs(): return [torch.randn(3, 4).abs() + 0.1]
def get_init_inputs(): return []
"""


def test_constants_may_be_infinite(quick: Judge) -> None:
    """The first states of a recursion over logarithms. Inductor's bounds of a sum of opposite infinities end in an error."""
    verdict = quick.judge(problem(INFINITE), Candidate(source=compiled(problem(INFINITE), Options())))
    assert verdict.correct, verdict.message


TANGENTS = """
class Model(nn.Module):
    def wave(self, x):
        return (x[:, None] * 10 * torch.arange(3)).cos()
    def forward(self, x, v):
        return torch.func.jvp(self.wave, (x,), (v,))
rows = 6
def get_inputs(): return [torch.randn(rows), torch.randn(rows)]
"""


def test_what_autograd_asks_without_memory_is_no_constant() -> None:
    """It takes the shape of a product with zeros from tensors of the device ``meta``, whose operators are in the graph."""
    assert captured(TANGENTS).way == "make_fx"
