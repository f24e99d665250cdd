"""Expressions of kernels that Triton takes in some forms only: numbers that are no tensors, and single addresses."""

import ast

import pytest
from compiled import problem

from kernelllm.compiler.compiler_writer import Compiler, compiled
from kernelllm.compiler.emit.kernels import integers
from kernelllm.compiler.options import Options
from kernelllm.core.text import syntax_tree
from kernelllm.core.types import Candidate
from kernelllm.judge import Judge

ONE_ADDRESS = """
class Model(nn.Module):
    def forward(self, pose, points):
        rotation = pose[:3, :3]
        x, y, z = (points @ rotation.t() + pose[:3, 3]).unbind(-1)
        zero = torch.zeros_like(z)
        z = torch.where(z.abs() > 0.2, z, torch.ones_like(z))
        return torch.stack([1 / z, zero, -x / z**2, zero, 1 / z, -y / z**2], -1).view(-1, 2, 3) @ rotation
count = 600
def get_inputs(): return [torch.randn(4, 4), torch.randn(count, 3)]
"""
A_FRACTION_IN_A_LOOP = """
class Model(nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.bins = bins
        self.register_buffer("centers", torch.linspace(0, 1, bins))
    def forward(self, x):
        far = (x.flatten(1)[:, None, :] - self.centers[None, :, None]).abs() / (1.0 / (self.bins - 1))
        return torch.clamp(1 - far, min=0).sum(-1)
bins = 20
def get_inputs(): return [torch.rand(2, 192, 256)]
def get_init_inputs(): return [bins]
"""
A_POWER_OF_SIZES = """
class Model(nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, width))
    def forward(self, grad):
        return self.weight - 0.02 * max(1.0, self.weight.shape[0] / self.weight.shape[1]) ** 0.5 * (grad + 1)
rows, width = 48, 30
def get_inputs(): return [torch.randn(rows, width)]
def get_init_inputs(): return [rows, width]
"""
A_SIZE_AS_AN_ARGUMENT = """
class Model(nn.Module):
    def forward(self, x):
        n, m = x.shape
        return torch.fmod(x * 20, n), torch.div(x * 50, m, rounding_mode="trunc"), torch.addcdiv(x, x, torch.full_like(x, m), value=n)
rows, width = 48, 30
def get_inputs(): return [torch.randn(rows, width)]
"""


@pytest.mark.parametrize("body", [ONE_ADDRESS, A_FRACTION_IN_A_LOOP, A_POWER_OF_SIZES, A_SIZE_AS_AN_ARGUMENT],
                         ids=["address", "fraction", "power", "size"])  # fmt: skip
def test_kernels_compile(quick: Judge, body: str) -> None:
    (candidate,) = Compiler().write(problem(body), 1)
    verdict = quick.judge(problem(body), candidate)
    assert verdict.correct, verdict.message


DIVIDED = """
class Model(nn.Module):
    def forward(self, x, step: float): return torch.relu(x / step)
rows, width = 24, 40
def get_inputs(): return [torch.randn(rows, width), 8.0]
"""
SORTED = """
class Model(nn.Module):
    def forward(self, x): return torch.sort(x, descending=True)[0]
width = 2000
def get_inputs(): return [torch.randn(width)]
"""


def test_a_python_float_has_a_path_for_known_sizes(hybrid: Judge) -> None:
    source = compiled(problem(DIVIDED), Options(fixed=True, mixed=True))
    assert "forward_at_known_sizes" in source
    verdict = hybrid.judge(problem(DIVIDED), Candidate(source=source))
    assert verdict.correct, verdict.message


def test_a_path_for_known_sizes_has_kernels() -> None:
    source = compiled(problem(SORTED), Options(fixed=True, mixed=True))
    assert "sort_kernel[" in source
    assert "forward_at_known_sizes" not in source


NORMED = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b = nn.Linear(width, 512, bias=False), nn.Linear(width, 288, bias=False)
        self.whole, self.part = nn.RMSNorm(512), nn.RMSNorm(256)
    def forward(self, x): return self.whole(self.a(x)), self.part(self.b(x)[..., :256])
rows = 24
def get_inputs(): return [torch.randn(rows, 16)]
def get_init_inputs(): return [16]
"""


def test_a_length_and_a_divisor_of_one_value_are_two_arguments(quick: Judge) -> None:
    (candidate,) = Compiler().write(problem(NORMED), 1)
    assert candidate.source.count("def rms_norm") == 1
    verdict = quick.judge(problem(NORMED), candidate)
    assert verdict.correct, verdict.message


def test_a_minus_in_front_of_a_quotient_stays_the_dividends() -> None:
    long = "x + rows * (f * h) - h * rows + (-1 * h) // 2 + 2 * w * rows + w"
    for text in (long, "(x + (-1 * h) // 2) // 3 + h", "x * h + (-1 * h) % 3 - x * w"):
        made = ast.unparse(integers.collect(syntax_tree(text).body[0].value, ["f", "h", "w"]))
        for h in (4, 5, 17):
            given = {"x": 100, "rows": 3, "f": 7, "h": h, "w": 11}
            assert eval(made, {}, given) == eval(text, {}, given), made
