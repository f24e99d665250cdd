"""Functions of torch that read sizes as numbers in C++: their files hold for other sizes."""

import pytest
from compiled import captured, problem

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options
from kernelllm.core.types import Candidate
from kernelllm.judge import Judge

MODULE = """
class Model(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
    def forward(self, x):
        return {} * self.scale
batch, rows, width, scale = 3, 6, 10, 0.5
def get_inputs(): return [torch.rand(batch, rows, width)]
def get_init_inputs(): return [scale]
"""
CALLS = [
    "torch.gradient(x, spacing=0.3, dim=2, edge_order=2)[0]",
    "torch.gradient(x[0], dim=(0, 1))[0]",
    "torch.kron(x[0], x[1, 0])",
    "x.take_along_dim(x.argmax(1, keepdim=True), 1)",
    "torch.take_along_dim(x, x[..., :1].argsort(1), 1)",
    "torch.linalg.multi_dot([x[0], x[0].t(), x[1], x[0, 1]])",
    "torch.vander(x[0, 0], 3)",
    "x.unfold(2, x.shape[1] // 2, x.shape[0])",
    "F.unfold(x[None], (x.shape[0], 3), padding=(x.shape[0], 0), stride=(x.shape[0], 1))",
    "F.unfold(x[None], (x.shape[1] // 2, 2), dilation=(1, x.shape[0]))",
    "F.fold(x, (1, x.shape[1] + x.shape[2] - 1), (1, x.shape[1]))",
    "F.fold(x[0], (1, (x.shape[2] - 1) * x.shape[0] + x.shape[1]), (1, x.shape[1]), stride=(1, x.shape[0]))",
    "x * torch.fft.fftfreq(x.shape[2], 0.5)",
    "torch.fft.rfftfreq(x.shape[2] - 1)",
    "F.avg_pool2d(x.clamp(min=0.1) ** 3, x.shape[1:])",
    "F.max_pool2d(x, (x.size(1), x.size(2)), stride=(x.size(1), x.size(2)))",
    "torch.linalg.norm(x[0], 1)",
    "torch.linalg.matrix_norm(x, float('-inf'))",
    "(x @ x.mT)[:, torch.tril_indices(x.shape[1], x.shape[1], -1)[0], torch.tril_indices(x.shape[1], x.shape[1], -1)[1]]",
    "(x.mT @ x)[:, torch.triu_indices(x.shape[2], x.shape[2])[0], torch.triu_indices(x.shape[2], x.shape[2])[1]]",
]


@pytest.mark.parametrize("call", CALLS)
def test_no_size_is_fixed(call: str) -> None:
    assert not captured(MODULE.format(call)).specialized


@pytest.mark.parametrize("call", [CALLS[0], CALLS[4], CALLS[9], CALLS[10], CALLS[14]])
def test_other_sizes_are_right(quick: Judge, call: str) -> None:
    module = problem(MODULE.format(call))
    verdict = quick.judge(module, Candidate(source=compiled(module, Options())))
    assert verdict.correct, verdict.message


def test_a_window_over_the_whole_image_is_a_reduction() -> None:
    found = captured(MODULE.format("F.avg_pool2d(torch.cat((x.exp(), F.max_pool2d(x.exp(), x.shape[1:]).expand_as(x))), x.shape[1:])"))
    names = str(found.graph.graph)
    assert "aten.mean.dim" in names
    assert "aten.amax" in names
    assert "pool" not in names


CONSTRUCTED = """
class Model(nn.Module):
    def __init__(self, width, hop):
        super().__init__()
        self.hop = hop
        self.register_buffer("window", torch.hann_window(width))
        self.register_buffer("frequencies", torch.fft.rfftfreq(width))
        self.register_buffer("pairs", torch.triu_indices(hop, hop, 1))
    def forward(self, x, y):
        frames = x.unfold(1, self.window.shape[0], self.hop) * self.window
        return frames[..., : self.frequencies.shape[0]] * self.frequencies, y[:, self.pairs[0], self.pairs[1]], y[..., self.hop - 1]
batch, width, hop = 3, 64, 16
def get_inputs(): return [torch.rand(batch, 8 * width), torch.rand(batch, hop, hop)]
def get_init_inputs(): return [width, hop]
"""


def test_a_constructor_may_pass_sizes_and_a_forward_index_by_them() -> None:
    found = captured(CONSTRUCTED)
    assert found.way == "make_fx"
    assert not found.fixed
    assert not found.specialized
