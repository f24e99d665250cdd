"""A norm that is in the other mode by itself: the file was not written for that, and says so."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options
from kernelllm.core.types import Problem

NORMED = """
import torch, torch.nn as nn
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
    def forward(self, x):
        return self.norm(x).relu()
rows, width = 20, 8
def get_inputs(): return [torch.randn(rows, width)]
def get_init_inputs(): return [width]
"""


MANY = """
import torch, torch.nn as nn
class Model(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(width) for _ in range(depth)])
    def forward(self, x):
        for layer, norm in zip(self.layers, self.norms):
            x = torch.relu(x + norm(layer(x)))
        return x
rows, width, depth = 20, 8, 6
def get_inputs(): return [torch.randn(rows, width)]
def get_init_inputs(): return [width, depth]
"""
DROPPING = NORMED.replace("__init__()", "__init__(); self.drop = nn.Dropout(0.5)").replace(".relu()", ".relu() + self.drop(x)")


@pytest.mark.parametrize(("text", "frozen"), [(NORMED, "norm"), (MANY, "norms.5"), (DROPPING, "norm")])
def test_a_frozen_norm_is_refused_in_a_model_that_trains(text: str, frozen: str, tmp_path: Path) -> None:
    source = compiled(Problem(name="normed", source=text), Options())
    file = tmp_path / "file.py"
    file.write_text(source)
    spec = importlib.util.spec_from_file_location("written", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.ModelNew(*([8, 6] if "depth" in text else [8]))
    model.get_submodule(frozen).eval()
    with pytest.raises(RuntimeError, match="after train"):
        model(torch.randn(20, 8))
