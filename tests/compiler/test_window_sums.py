"""The gradient of ``unfold``, of which ``istft`` is made: what windows over a place hold is gathered."""

import pytest
import torch
from compiled import captured

from kernelllm.compiler.capture.decompositions.window_sums import unfold_backward

CASES = [((3, 20), 1, 4, 2), ((2, 21, 4), 1, 7, 2), ((2, 21, 4), -2, 3, 5), ((30,), 0, 20, 1), ((2, 30, 3), 1, 4, 4), ((4, 4), 0, 4, 1)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("shape", "dim", "size", "step"), CASES)
def test_sums_of_windows_are_torchs(shape: tuple[int, ...], dim: int, size: int, step: int, dtype: torch.dtype) -> None:
    grad = torch.randn_like(torch.zeros(shape, dtype=dtype).unfold(dim, size, step))
    wide = torch.ops.aten.unfold_backward(grad.double(), shape, dim, size, step)
    made = unfold_backward(grad, shape, dim, size, step)
    torch.testing.assert_close(made, wide.to(dtype), rtol=0.01 if dtype == torch.bfloat16 else 1e-12, atol=1e-12)


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
