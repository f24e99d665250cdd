"""Forward and backward as a pair: what is written trains as eager does, keeps no more than eager, and is judged with its gradients."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import interpreted
import pytest
from compiler.compiled import IMPORTS, LINEAR, captured, problem

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options
from kernelllm.core.errors import CaptureError
from kernelllm.core.types import Candidate
from kernelllm.judge import Judge

BACKWARD = Options(backward=True)
SIZES = """
batch = 6
width = 12
hidden = 18
def get_inputs(): return [torch.randn(batch, width)]
def get_init_inputs(): return [width, hidden]
"""
NORM = (
    """
class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.fc = nn.Linear(width, hidden)
        self.norm = nn.LayerNorm(hidden)
    def forward(self, x):
        return F.gelu(self.norm(self.fc(x)))
"""
    + SIZES
)
ATTENTION = (
    """
class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * hidden)
    def forward(self, x):
        q, k, v = self.qkv(x)[None, None].chunk(3, -1)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
"""
    + SIZES
)
CONVOLUTION = """
class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, 4, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(4)
    def forward(self, x):
        return F.max_pool2d(torch.relu(self.norm(self.conv(x))), 2, stride=1)
batch = 2
channels = 5
height = 7
def get_inputs(): return [torch.randn(batch, channels, height, height)]
def get_init_inputs(): return [channels]
"""
PARTICULAR = (
    """
class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width))
        self.unused = nn.Parameter(torch.rand(hidden), requires_grad=False)
    def forward(self, x):
        y = torch.sigmoid(x * self.scale)
        return y, y.argmax(-1), y.softmax(0)
"""
    + SIZES
)
MODULATED = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.project = nn.LayerNorm(width, elementwise_affine=False), nn.Linear(width, width)
        self.modulation = nn.Linear(width, 3 * width)
    def forward(self, x, given):
        shift, scale, gate = self.modulation(given).chunk(3, dim=1)
        return x + gate.unsqueeze(1) * self.project(self.norm(x) * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1))
batch, tokens, width = 5, 6, 24
def get_inputs(): return [torch.randn(batch, tokens, width), torch.randn(batch, width)]
def get_init_inputs(): return [width]
"""
CHOSEN = (
    """
class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.fc = nn.Linear(width, hidden)
    def forward(self, x):
        y = self.fc(x)
        rows = (x[:, 0] > 0).nonzero().squeeze(1)
        out = torch.zeros_like(y).index_add(0, rows, torch.tanh(y[rows]))
        return out + torch.fft.rfft(y).abs().mean(-1, keepdim=True)
"""
    + SIZES
)
TRAINED = {"chosen": CHOSEN, "modulation": MODULATED, "norm": NORM, "attention": ATTENTION, "convolution": CONVOLUTION}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("backward")
    for name, body in {**TRAINED, "particular": PARTICULAR}.items():
        (folder / f"{name}.py").write_text(IMPORTS + body)
        (folder / f"{name}_new.py").write_text(compiled(problem(body, name), BACKWARD))
    told = interpreted.run(Path(__file__).with_name("backward_cases.py"), str(folder), *TRAINED, "particular")
    return {case["name"]: case for case in map(json.loads, told.splitlines())}


@pytest.mark.parametrize("name", TRAINED)
def test_training_follows_eagers_losses_and_keeps_no_more(results: dict[str, dict[str, Any]], name: str) -> None:
    theirs, mine = results[name]["losses"]
    assert theirs[-1] < theirs[0]
    assert mine == pytest.approx(theirs, rel=2e-3 if name == "convolution" else 1e-4)  # convolutions round to TF32
    assert results[name]["kept"][1] <= results[name]["kept"][0]


def test_outputs_inputs_and_parameters_without_gradients(results: dict[str, dict[str, Any]]) -> None:
    found = results["particular"]
    for name in ("all", "one output", "expanded gradient", "no gradient of the input", "frozen parameter"):
        assert found[name] < 1e-5, name
    assert found["has gradients"] == [True, False, True]
    assert "no second derivative" in found["second backward"]
    assert found["without gradients"] is False


def test_what_is_kept_is_as_small_as_it_can_be() -> None:
    pair = captured(LINEAR, BACKWARD)
    assert pair.backward is not None
    assert [kind for kind, _ in pair.backward.sources] == ["parameter", "parameter", "input"]
    assert len(pair.backward.saved) == 3  # input, weight and the product


def test_sums_of_products_of_sizes_stay_sizes_in_the_backward() -> None:
    body = """
class Model(nn.Module):
    def __init__(self, hidden, queries, keys, width):
        super().__init__()
        self.queries, self.keys, self.width = queries, keys, width
        self.project = nn.Linear(hidden, width * (queries + 2 * keys))
    def forward(self, x):
        y, n, k = self.project(x), self.queries * self.width, self.keys * self.width
        q = y[..., :n].view(*x.shape[:2], self.keys, self.queries // self.keys, self.width)
        v = y[..., n + k :].view(*x.shape[:2], self.keys, self.width)
        return torch.einsum("bqhmd,bkhd->bhmqk", q, v).softmax(-1)
def get_inputs(): return [torch.randn(2, 40, 96)]
def get_init_inputs(): return [96, 36, 18, 20]
"""
    pair = captured(body, BACKWARD)
    assert pair.way == "make_fx"
    assert not pair.fixed


def test_gradients_go_through_recurrent_layers() -> None:
    body = """
class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.rnn = nn.GRU(width, hidden)
    def forward(self, x):
        return self.rnn(x)[0]
"""
    pair = captured(body + SIZES.replace("randn(batch,", "randn(2, batch,"), BACKWARD)
    assert pair.backward is not None
    assert [name for _, name in pair.backward.sources] == ["rnn.weight_ih_l0", "rnn.weight_hh_l0", "rnn.bias_ih_l0", "rnn.bias_hh_l0", "x"]


def test_a_file_for_inference_names_the_option() -> None:
    assert "write it with --backward" in compiled(problem(LINEAR), Options())


def test_a_module_without_gradients_is_refused() -> None:
    body = "class Model(nn.Module):\n    def forward(self, x): return x.argmax(-1)\n" + SIZES.replace("[width, hidden]", "[]")
    with pytest.raises(CaptureError, match="no gradients"):
        compiled(problem(body), BACKWARD)


CUMULATIVE = """
class Model(nn.Module):
    def forward(self, x, grad):
        x = x.detach().requires_grad_(True)
        along, down = torch.cumprod(x, 1), (x * 2).cumprod(dim=0)
        return *torch.autograd.grad(along, x, grad), *torch.autograd.grad(down, x, grad)
rows, width = 12, 20
def get_inputs():
    x = torch.rand(rows, width) + 0.5
    x[1, 7] = x[2, 3] = x[2, 9] = 0.0
    return [x, torch.randn(rows, width)]
def get_init_inputs(): return []
"""


def test_the_gradient_of_a_cumulative_product_is_scans_also_where_zeros_are(quick: Judge) -> None:
    text = compiled(problem(CUMULATIVE), Options())
    assert text.count("_kernel[") < 10
    verdict = quick.judge(problem(CUMULATIVE), Candidate(source=text))
    assert verdict.correct, verdict.message
