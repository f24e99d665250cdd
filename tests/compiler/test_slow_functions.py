"""Where results of slow functions are stored, on the path for known sizes."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from kernelllm.compiler.capture.graph_editor import STORED
from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.inductor.slow_functions import mark
from kernelllm.compiler.options import Options
from kernelllm.core.types import Problem

ROTATED = """
import torch
import torch.nn as nn
batch, steps, heads, width = 2, 2048, 32, 64
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("rates", torch.rand(width // 2))
    def forward(self, x, positions):
        angles = positions[:, :, None].float() * self.rates
        cos, sin = (torch.cat((t, t), -1).unsqueeze(2) for t in (angles.cos(), angles.sin()))
        a, b = x.chunk(2, -1)
        return (x.float() * cos + torch.cat((-b, a), -1).float() * sin).to(x.dtype)
def get_inputs(): return [torch.rand(batch, steps, heads, width).bfloat16(), torch.arange(steps).repeat(batch, 1)]
def get_init_inputs(): return [width]
"""


def test_cosines_are_computed_once_for_all_heads() -> None:
    text = compiled(Problem(name="rotated", source=ROTATED), Options(extern="allow", symbolic=False, mixed=True))
    assert text.count("@triton.jit") == 2
    kernels = text.split("@triton.jit")[1:]
    assert ["tl.cos(" in kernel for kernel in kernels] == [True, False]


@pytest.mark.parametrize(
    ("function", "heads", "stored"),
    [
        (torch.cos, 64, True),
        (lambda g: torch.pow(g, 0.7), 64, True),
        (lambda g: torch.cos(g) * 2 + 1, 64, True),
        (lambda g: torch.pow(g, 2), 64, False),  # a product
        (torch.sigmoid, 64, False),  # hides behind memory
        (torch.cos, 4, False),  # few readers
        (torch.cos, 16, False),  # a launch takes as long
        (lambda g: torch.cos(torch.pow(g, 0.7)), 16, True),
    ],
)  # fmt: skip
def test_what_is_stored(function: object, heads: int, stored: bool) -> None:
    def forward(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        return x * function(gate).unsqueeze(1)  # type: ignore[operator]

    graph = make_fx(forward, tracing_mode="fake")(torch.empty(2**17, heads), torch.empty(2**17))
    mark(graph.graph)
    assert any(STORED in node.meta for node in graph.graph.nodes) == stored


@pytest.mark.parametrize(
    ("length", "written", "stored"),
    [
        (256, False, True),
        (256, True, False),  # hides behind the writing
        (4, False, False),  # few readers
    ],
)
def test_what_all_pairs_read(length: int, written: bool, stored: bool) -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        pairs = (x.unsqueeze(1) - x.unsqueeze(2)).abs() * torch.exp(x).unsqueeze(1)
        return pairs if written else pairs.sum(-1)

    graph = make_fx(forward, tracing_mode="fake")(torch.empty(2**24 // length, length))
    mark(graph.graph)
    assert any(STORED in node.meta for node in graph.graph.nodes) == stored


SEARCHED = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x, edges, values):
        return x.square().sum(-1) + edges.gather(1, torch.searchsorted(edges, values).clamp(max=64))
def get_inputs(): return [torch.randn(4096, 64, 64), torch.rand(4096, 65).sort(-1).values, torch.rand(4096, 64)]
def get_init_inputs(): return []
"""


def test_no_row_of_a_sum_searches_in_each_of_its_lanes() -> None:
    text = compiled(Problem(name="searched", source=SEARCHED), Options(extern="allow", symbolic=False, mixed=True))
    searching = [kernel for kernel in text.split("@triton.jit")[1:] if "= count_below(" in kernel]
    assert searching
    assert not any("tl.sum(" in kernel for kernel in searching)
