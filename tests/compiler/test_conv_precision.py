"""Convolutions round their inputs to TF32 where torch's do, which a caller may forbid."""

from __future__ import annotations

from pathlib import Path

import interpreted
import pytest
from compiled import problem

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options

MODEL = """
class Model(nn.Module):
    def __init__(self, channels, out):
        super().__init__()
        self.conv = CONV
    def forward(self, x): return torch.relu(self.conv(x))
batch, channels, out, size = 2, 8, 16, 9
def get_inputs(): return [torch.rand(batch, channels, size, size)]
def get_init_inputs(): return [channels, out]
"""
RUN = """
import importlib.util, sys, torch
from kernelllm.backends.base import Mode, open_backend
from kernelllm.core.types import DEFAULT_BACKEND
from kernelllm.judge.worker import setup
setup.prepare(Mode.INTERPRET, "sm_90", open_backend(DEFAULT_BACKEND))
spec = importlib.util.spec_from_file_location("candidate", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
torch.manual_seed(0)
model, x = module.ModelNew(8, 16).eval(), torch.rand(2, 8, 9, 9)
with torch.no_grad():
    exact = torch.relu(model.conv.double()(x.double())).float()
    model.conv.float()
    for allowed in (True, False):
        torch.backends.cudnn.allow_tf32 = allowed
        print(float((model(x) - exact).abs().max()))
"""


@pytest.mark.parametrize("conv", ["nn.Conv2d(channels, out, 3)", "nn.ConvTranspose2d(channels, out, 4, stride=2)"])
def test_tf32_is_as_torch_allows_it(conv: str, tmp_path: Path) -> None:
    path = tmp_path / "candidate.py"
    path.write_text(compiled(problem(MODEL.replace("CONV", conv)), Options()), encoding="utf-8")
    rounded, exact = map(float, interpreted.run(RUN, str(path)).split())
    assert 1e-5 < rounded < 2e-3
    assert exact < 2e-6


def test_few_products_are_not_rounded(tmp_path: Path) -> None:
    """Nor does cuDNN round them."""
    path = tmp_path / "candidate.py"
    path.write_text(compiled(problem(MODEL.replace("CONV", "nn.Conv2d(channels, out, 1)")), Options()), encoding="utf-8")
    assert all(float(error) < 2e-6 for error in interpreted.run(RUN, str(path)).split())
