"""Modules of packages: the written file has their parameters and buffers, and imports neither the package nor its constructor."""

from __future__ import annotations

import copy
import sys

import pytest
import torch

from kernelllm.compiler.compiler_writer import Compiler
from kernelllm.core.types import Problem
from kernelllm.judge import Judge
from kernelllm.suites.file import open_problem

LAYERS = '''
import torch
import torch.nn as nn


class Configuration:
    def __init__(self, width, layers):
        self.width, self.layers = width, layers


class Layer(nn.Module):
    def __init__(self, configuration):
        super().__init__()
        self.fc = nn.Linear(configuration.width, configuration.width, bias=False)

    def forward(self, x):
        return torch.tanh(self.fc(x))


class Stack(nn.Module):
    def __init__(self, configuration, factor=2.0):
        super().__init__()
        self.factor = factor
        self.seen = nn.BatchNorm1d(2, affine=False)
        self.layers = nn.ModuleList(Layer(configuration) for _ in range(configuration.layers))
        self.head = nn.Linear(configuration.width, configuration.width, bias=False)
        self.head.weight = self.layers[0].fc.weight
        self.register_buffer("offset", torch.linspace(0.5, 1.5, configuration.width), persistent=False)
        self.register_buffer("count", torch.tensor(3))

    def forward(self, x, scale=None):
        for layer in self.layers:
            x = layer(x)
        return self.head(x) * self.offset * self.factor
'''
PROBLEM = '''
import torch
from layers_of_others import Configuration, Stack
class Model(Stack):
    def __init__(self, width, factor=2.0):
        super().__init__(Configuration(width, 2), factor)
batch, width = 12, 24
def get_inputs(): return [torch.rand(batch, width)]
def get_init_inputs(): return [width, 0.5]
'''


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A problem file beside the module that it takes its Model from."""
    (tmp_path / "layers_of_others.py").write_text(LAYERS)
    file = tmp_path / "stack.py"
    file.write_text(PROBLEM)
    return Problem(name="stack", source=PROBLEM, path=str(file))


def test_state_sits_in_holders_under_its_names(package: Problem, judge: Judge):
    candidate = next(Compiler().write(package, 1))
    assert "layers_of_others" not in candidate.source
    assert "fc=nn.Linear(24, 24, bias=False)" in candidate.source
    namespace: dict = {}
    exec(candidate.source.replace("@triton.jit", ""), namespace)
    model = namespace["ModelNew"](24, 0.5)
    seen = ["seen.running_mean", "seen.running_var", "seen.num_batches_tracked"]
    assert list(model.state_dict()) == ["count", *seen, "layers.0.fc.weight", "layers.1.fc.weight", "head.weight"]
    assert model.head.weight is model.layers[0].fc.weight
    torch.testing.assert_close(model.offset, torch.linspace(0.5, 1.5, 24), rtol=0, atol=0)
    with pytest.raises(ValueError, match=r"factor=0\.5"):
        namespace["ModelNew"](24, 2.0)
    with pytest.raises(NotImplementedError, match="factor: the kernels hold"):
        copy.deepcopy(model).factor = 3.0
    model.eval().note = model.head
    verdict = judge.judge(package, candidate)
    assert verdict.correct, verdict.message
    assert any("width = 24 alone" in f.message for f in verdict.findings)
    assert any("batch" in s.changed for s in verdict.shapes)


def test_the_package_stays_unknown_to_the_process(package: Problem):
    next(Compiler().write(package, 1))
    assert "layers_of_others" not in sys.modules


@pytest.mark.parametrize("spec", ["parts/layers.py:Scale", "parts.layers:Scale"])
def test_a_class_is_imported_from_its_package(tmp_path, monkeypatch, judge: Judge, spec: str):
    """Its file has a relative import and a class Model of its own, and is not the problem's text."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("")
    (tmp_path / "parts" / "numbers.py").write_text("FACTOR = 3.0\n")
    (tmp_path / "parts" / "layers.py").write_text(
        "import torch\nfrom .numbers import FACTOR\nclass Model(torch.nn.Module): pass\n"
        "class Scale(torch.nn.Module):\n    def __init__(self, width):\n        super().__init__()\n"
        "        self.gain = torch.nn.Parameter(torch.rand(width))\n    def forward(self, x): return x * self.gain * FACTOR\n"
    )
    monkeypatch.chdir(tmp_path)
    problem = open_problem(spec, shapes=["8,24"], init="24")
    candidate = next(Compiler().write(problem, 1))
    assert "parts" not in candidate.source
    verdict = judge.judge(problem, candidate)
    assert verdict.correct, verdict.message
