"""Long reductions: two plain kernels, along dimensions that the module has."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from compiled import IMPORTS, captured, problem
from emitted import agrees_with_reference, written

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options
from kernelllm.core.types import Candidate
from kernelllm.judge import Judge

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


BESIDE_A_SLICE = """
class Model(nn.Module):
    @torch.enable_grad()
    def forward(self, x, target):
        x = x.detach().requires_grad_(True)
        loss = F.mse_loss(torch.relu(x[..., 1:]) * F.softplus(x[..., :1]), target, reduction="sum")
        gradient, = torch.autograd.grad(loss, x)
        return gradient * 2, gradient.sum((0, 1))
batch, steps, width = 4096, 64, 256
def get_inputs(): return [torch.randn(batch, steps, width + 1), torch.randn(batch, steps, width)]
def get_init_inputs(): return []
"""


def test_the_end_of_a_slice_is_no_multiple_of_a_number_of_parts(tmp_path: Path) -> None:
    """At these sizes the parts are marked by 337, which divides the end of ``x[..., 1:]``."""
    text = compiled(problem(BESIDE_A_SLICE), Options())
    assert "splits" in text
    (tmp_path / "slice.py").write_text(IMPORTS + BESIDE_A_SLICE)
    (tmp_path / "new.py").write_text(text)
    agrees_with_reference(tmp_path, [("slice", str(tmp_path / "new.py"), [{"batch": 3, "steps": 5, "width": 9}])])


NUMBERS = """
class Model(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.register_buffer("left_out", torch.arange(0, words, STEP))
    def forward(self, x):
        kept = x.index_fill(0, self.left_out, 0.0)
        return kept[2 * STEP:].sum(), kept
words = 200000
def get_inputs(): return [torch.rand(words)]
def get_init_inputs(): return [words]
"""


@pytest.mark.parametrize("step", [97, 61, 53, 127])
def test_a_number_of_parts_is_no_number_of_the_module(step: int, quick: Judge) -> None:
    """A prime stands for the parts of a long sum until the file is written; a step of the module may be that prime."""
    text = NUMBERS.replace("STEP", str(step))
    verdict = quick.judge(problem(text), Candidate(source=compiled(problem(text), Options())))
    assert verdict.correct, verdict.message


OFF_DIAGONAL = """
class Model(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
    def forward(self, x):
        c = x.T @ x
        n = c.shape[0]
        return c.flatten()[:-1].view(n - 1, n + 1)[:, 1:].flatten().square().sum() * self.scale
rows, width, scale = 8, 1024, 0.5
def get_inputs(): return [torch.randn(rows, width)]
def get_init_inputs(): return [scale]
"""


def test_parts_of_a_length_with_a_difference_are_as_long_as_those_that_are_launched(quick: Judge) -> None:
    source = compiled(problem(OFF_DIAGONAL), Options())
    assert "splits" in source
    verdict = quick.judge(problem(OFF_DIAGONAL), Candidate(source=source))  # at smaller sizes elements were left out
    assert verdict.correct, verdict.message


DIVERGENCE = """
class Model(nn.Module):
    def forward(self, x, y):
        chances = F.softmax(y, dim=-1)
        return F.kl_div(F.log_softmax(x, dim=-1), chances, reduction="sum"), (x * y).sum()
rows, width = 2048, 32000
def get_inputs(): return [torch.randn(rows, width), torch.randn(rows, width)]
def get_init_inputs(): return []
"""


def test_a_sum_behind_softmaxes_is_cut_at_their_rows_where_sizes_are_known() -> None:
    graph = captured(DIVERGENCE, Options(extern="allow", symbolic=False, mixed=True)).graph.graph
    sums = [n for n in graph.nodes if n.op == "call_function" and "aten.sum" in str(n.target)]
    scalars = [n.all_input_nodes[0].meta["val"].shape for n in sums if not n.meta["val"].shape]
    assert sorted(map(tuple, scalars)) == [(2048,), (2048, 32000)]  # the sum of products is left as it is
