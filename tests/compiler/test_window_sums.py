"""``fold`` and the gradient of ``unfold``, of which ``istft`` is made: what windows over a place hold is gathered."""

import pytest
import torch
import torch.nn.functional as F
from compiled import captured, problem

from kernelllm.compiler.capture.decompositions.window_sums import fold, unfold_backward
from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options

CASES = [((3, 20), 1, 4, 2), ((2, 21, 4), 1, 7, 2), ((2, 21, 4), -2, 3, 5), ((30,), 0, 20, 1), ((2, 30, 3), 1, 4, 4), ((4, 4), 0, 4, 1)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("shape", "dim", "size", "step"), CASES)
def test_sums_of_windows_are_torchs(shape: tuple[int, ...], dim: int, size: int, step: int, dtype: torch.dtype) -> None:
    grad = torch.randn_like(torch.zeros(shape, dtype=dtype).unfold(dim, size, step))
    wide = torch.ops.aten.unfold_backward(grad.double(), shape, dim, size, step)
    made = unfold_backward(grad, shape, dim, size, step)
    torch.testing.assert_close(made, wide.to(dtype), rtol=0.01 if dtype == torch.bfloat16 else 1e-12, atol=1e-12)


FOLDS = [
    ((8, 9), (3, 3), (1, 1), (1, 1), (1, 1)), ((1, 40), (1, 8), (1, 1), (0, 0), (1, 2)), ((12, 10), (3, 2), (2, 3), (2, 1), (2, 1)),
    ((20, 17), (7, 7), (1, 1), (3, 3), (2, 3)), ((9, 9), (2, 2), (1, 1), (0, 0), (3, 3)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
@pytest.mark.parametrize("numbers", FOLDS)
def test_folded_windows_are_torchs(numbers: tuple[tuple[int, int], ...], dtype: torch.dtype) -> None:
    columns = torch.randn_like(F.unfold(torch.zeros(2, 3, *numbers[0]), *numbers[1:]), dtype=torch.float64).to(dtype)
    wide = torch.ops.aten.col2im(columns.double(), *numbers)
    torch.testing.assert_close(fold(columns, *numbers), wide.to(dtype), rtol=0.002 if dtype == torch.float16 else 1e-12, atol=1e-12)
    torch.testing.assert_close(fold(columns[1], *numbers), wide[1].to(dtype), rtol=0.002 if dtype == torch.float16 else 1e-12, atol=1e-12)


def test_the_gradient_of_windows_adds_nothing_by_atomics() -> None:
    body = """
class Model(nn.Module):
    def forward(self, x, g):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(F.unfold(x, 5, padding=2).tanh(), [x], g)
rows, width = 12, 20
def get_inputs(): return [torch.randn(2, 3, rows, width), torch.randn(2, 75, rows * width)]
def get_init_inputs(): return []
"""
    assert not [n for n in captured(body).graph.graph.nodes if "index_put" in str(n.target)]


def test_long_windows_are_few_operators_for_any_length() -> None:
    body = """
class Model(nn.Module):
    def __init__(self, size, step):
        super().__init__()
        self.size, self.step = size, step
        self.register_buffer("window", torch.hann_window(size))
    def forward(self, spectrum):
        return torch.istft(spectrum, self.size, self.step, window=self.window, center=True)
frames, size, step = 9, 512, 128
def get_inputs(): return [torch.randn(2, size // 2 + 1, frames, dtype=torch.complex64)]
def get_init_inputs(): return [size, step]
"""
    found = captured(body)
    assert found.way == "make_fx"
    assert len(found.graph.graph.nodes) < 300


def test_a_pool_of_a_whole_image_is_a_reduction_for_any_size() -> None:
    """A window's elements are read by many threads, and windows as large as the image keep no size fixed."""
    body = """
class Model(nn.Module):
    def forward(self, x, y):
        a, b = F.avg_pool2d(x, x.shape[2:]), F.max_pool2d(x, (x.size(2), x.size(3)), stride=1)
        return a, b, F.avg_pool1d(y, y.shape[-1]), F.max_pool1d(y, kernel_size=y.shape[-1]), F.avg_pool2d(x, (x.size(2), 1), stride=1)
def get_inputs(): return [torch.randn(2, 3, 12, 20), torch.randn(2, 3, 40)]
def get_init_inputs(): return []
"""
    found = captured(body)
    targets = {str(n.target) for n in found.graph.graph.nodes}
    assert not [t for t in targets if "pool" in t]
    assert {"aten.amax.default", "aten.mean.dim"} <= targets


def test_a_pool_that_is_differentiated_or_divides_by_another_number_is_none() -> None:
    body = """
class Model(nn.Module):
    def forward(self, x, g):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = F.max_pool2d(x, (6, 6)) + F.avg_pool2d(x, (6, 6), divisor_override=7)
            return torch.autograd.grad(y, [x], g)
def get_inputs(): return [torch.randn(2, 3, 6, 6).relu(), torch.randn(2, 3, 1, 1)]
def get_init_inputs(): return []
"""
    targets = {str(n.target) for n in captured(body).graph.graph.nodes}
    assert not {"aten.amax.default", "aten.mean.dim"} & targets


ENVELOPE = """
class Model(nn.Module):
    def __init__(self, window):
        super().__init__()
        self.register_buffer("window", torch.hann_window(window))
    def forward(self, x):
        fold = dict(output_size=(1, length), kernel_size=(1, window), stride=(1, window // 4))
        count = (length - window) // (window // 4) + 1
        envelope = F.fold(self.window.square().view(1, -1, 1).expand(1, -1, count), **fold).clamp_min(1e-3).view(1, -1)
        return F.softmax(x / envelope, 1) / envelope
batch, length, window = 4, 1024, 256
def get_inputs(): return [torch.rand(batch, length)]
def get_init_inputs(): return [window]
"""


def test_a_sum_of_windows_of_the_module_is_made_once() -> None:
    text = compiled(problem(ENVELOPE), Options(fixed=True, mixed=True))
    assert "self.prepared()" in text[text.index("def forward_at_known_sizes") :]
