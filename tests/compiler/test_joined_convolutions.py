"""Convolutions whose normalisation, residual and ReLU are cuDNN's."""

from __future__ import annotations

import re
from pathlib import Path

import interpreted
import pytest
from compiled import IMPORTS, problem

from kernelllm.compiler.capture.rewrites import joined_convolutions
from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.inductor import regions
from kernelllm.compiler.options import Options
from kernelllm.core.types import Candidate
from kernelllm.judge import Judge

MIXED = Options(fixed=True, mixed=True)

BLOCK = """
class Model(nn.Module):
    def __init__(self, channels, hidden):
        super().__init__()
        self.first, self.first_norm = nn.Conv2d(channels, hidden, 1, bias=False), nn.BatchNorm2d(hidden)
        self.second = nn.Conv2d(hidden, hidden, 3, stride=1, padding=2, dilation=2)
        self.last, self.last_norm = nn.Conv2d(hidden, channels, 1), nn.BatchNorm2d(channels)
        for norm in (self.first_norm, self.last_norm):
            nn.init.uniform_(norm.weight, 0.5, 1.5), nn.init.uniform_(norm.bias)
            norm.running_mean.uniform_(-1, 1), norm.running_var.uniform_(0.5, 2)
        self.half().eval()
    def forward(self, x):
        y = torch.relu(self.first_norm(self.first(x)))
        y = torch.relu(self.second(y))
        return torch.relu(self.last_norm(self.last(y)) + x)
batch, channels, hidden, size = 2, 16, 8, 6
def get_inputs(): return [torch.rand(batch, channels, size, size).half()]
def get_init_inputs(): return [channels, hidden]
"""

RUN = """
import importlib.util, torch
from kernelllm.backends.base import Mode, open_backend
from kernelllm.core.types import DEFAULT_BACKEND, Problem
from kernelllm.judge.worker import setup
from kernelllm.problems.instance import Instance
instance = Instance(Problem(name="block", source=open({problem!r}).read()))
reference, (x,), (sizes, _) = instance.model(0), instance.inputs(1), instance.init_inputs(0)
setup.prepare(Mode.INTERPRET, "sm_90", open_backend(DEFAULT_BACKEND))
spec = importlib.util.spec_from_file_location("candidate", {candidate!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
model = module.ModelNew(*sizes).half()
state = reference.state_dict()
for factor in (1.0, 1.5):  # what was made of the weights is made again
    state = {{k: v * factor if v.is_floating_point() else v for k, v in state.items()}}
    reference.load_state_dict(state), model.load_state_dict(state)
    torch.testing.assert_close(model.eval()(x), reference(x), atol=2e-2, rtol=2e-2)
print("ran")
"""


def test_a_block_is_three_convolutions_with_weights_made_once(tmp_path: Path, hybrid: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined_convolutions, "_LARGE", 0)
    text = compiled(problem(BLOCK), MIXED)
    path = text.partition("def forward_at_known_sizes")[2]
    assert path.count("= conv_relu(") == 3
    assert "self.prepared(" in path
    assert path.count("_kernel[") == 1  # the input's layout
    (tmp_path / "problem.py").write_text(IMPORTS + BLOCK)
    (tmp_path / "candidate.py").write_text(text)
    script = RUN.format(problem=str(tmp_path / "problem.py"), candidate=str(tmp_path / "candidate.py"))
    assert interpreted.run(script).strip().endswith("ran")
    verdict = hybrid.judge(problem(BLOCK), Candidate(source=text))
    assert verdict.correct, verdict.message


@pytest.mark.parametrize(
    ("old", "new", "joined"),
    [
        ("torch.relu(self.second(y))", "nn.functional.silu(self.second(y))", 2),
        ("+ x)", "- x)", 2),
        ("self.second(y))", "0.5 * self.second(y) * 3.0 + 1)", 3),
        ("hidden, 3, stride=1, padding=2, dilation=2", "hidden, 3, padding=1, groups=2", 2),
        ("self.second(y))", "y + self.second(y))", 3),
        ("self.second(y))", "self.second(y)) * y.mean()", 2),
        ("self.half().eval()", "self.double().eval()", 0),
        ("self.half().eval()", "self.eval()", 3),
    ],
)
def test_which_are_joined(old: str, new: str, joined: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined_convolutions, "_LARGE", 0)
    source = BLOCK.replace(old, new)
    if "self.half()" not in source:
        source = source.replace(".half()", ".double()" if "double" in new else "")
    text = compiled(problem(source), MIXED).partition("def forward_at_known_sizes")[2]
    assert text.count("= conv_relu(") == joined


TRACED = """
aten = torch.ops.aten
class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weights = nn.ParameterList(torch.rand(channels, channels, k, k) - 0.5 for k in (3, 1, 1))
        self.vectors = nn.ParameterList(torch.rand(channels) + 0.5 for _ in range(4))
        self.half().eval()
    def convolved(self, x, at, padding=0):
        y = aten.convolution.default(x, self.weights[at], None, [1, 1], [padding] * 2, [1, 1], False, [0, 0], 1)
        return aten._native_batch_norm_legit_no_training.default(y, *self.vectors, 0.1, 1e-5)[0]
    def forward(self, x):
        y = aten.max_pool2d_with_indices.default(aten.relu.default(self.convolved(x, 0, 1)), [3, 3], [2, 2], [1, 1])[0]
        z = aten.relu.default(self.convolved(y, 1))
        return aten.relu.default(self.convolved(z, 2) + self.convolved(y, 2)).mean((2, 3))
batch, channels, size = 2, 16, 6
def get_inputs(): return [torch.rand(batch, channels, size, size).half()]
def get_init_inputs(): return [channels]
"""


def test_between_convolutions_of_a_long_graph_everything_is_channels_last(hybrid: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a graph is cut into regions, which hand tensors on as the graph was traced: in torch's own layout."""
    monkeypatch.setattr(joined_convolutions, "_LARGE", 0)
    monkeypatch.setattr(regions, "LONG", 3)
    text = compiled(problem(TRACED), MIXED)
    path = text.partition("def forward_at_known_sizes")[2]
    assert path.count("= conv_relu(") == 3
    made = re.findall(r"torch\.empty\(([^()]*)\)", path)
    assert [m for m in made if len(m.split(", device")[0].split(",")) == 4]
    assert not [m for m in made if len(m.split(", device")[0].split(",")) == 4 and "channels_last" not in m]
    verdict = hybrid.judge(problem(TRACED), Candidate(source=text))
    assert verdict.correct, verdict.message
