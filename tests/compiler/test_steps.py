"""Files that go through a module step by step are right, and have the lines that a reader of the module expects."""

from __future__ import annotations

import interpreted
import pytest

from kernelllm.compiler.compiler_writer import Compiler
from kernelllm.compiler.stepwise.step_values import Unsupported
from kernelllm.compiler.stepwise.steps_writer import written
from kernelllm.core.types import Problem

MODULE = """import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {layers}

    def forward(self, {inputs}):
        {body}

def get_inputs():
    return [{draws}]

def get_init_inputs():
    return []
"""

CHECK = """
import importlib.util, pathlib, sys, tempfile, torch

def loaded(text):
    path = pathlib.Path(tempfile.mkdtemp()) / "m.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("m", path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found

for module, file in {pairs!r}:
    old, new = loaded(module), loaded(file)
    torch.manual_seed(0)
    model = old.Model()
    other = new.ModelNew()
    other.load_state_dict(model.state_dict())
    inputs = old.get_inputs()
    torch.testing.assert_close(other(*inputs), model(*inputs), rtol=1e-2, atol=4e-3, equal_nan=True)  # convolutions round to TF32
    for (name, a), b in zip(other.state_dict().items(), model.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-3, msg=name)
print("right")
"""

IMAGE = "torch.randn(2, 3, 6, 7)"
CASES = {
    "a convolution and more": (
        "self.conv = nn.Conv2d(3, 8, 3, padding=1)\n        self.bias = nn.Parameter(torch.randn(8, 1, 1))\n        self.k = 1.5",
        "x", "x = self.conv(x)\n        x = torch.relu(x) * self.k + self.bias\n        return torch.logsumexp(x, dim=1, keepdim=True)",
        IMAGE,
    ),
    "batch norm and a residual": (
        "self.conv = nn.ConvTranspose2d(3, 4, 3, stride=2)\n        self.bn = nn.BatchNorm2d(4)",
        "x", "y = self.conv(x)\n        z = self.bn(y)\n        y = y + F.gelu(z)\n        return F.max_pool2d(y, 2) - z.mean()", IMAGE,
    ),
    "names that functions have": (
        "self.fc = nn.Linear(7, 5)",
        "x", "linear = self.fc(x)\n        softmax = torch.softmax(linear, -1)\n        return softmax * torch.sigmoid(softmax)", IMAGE,
    ),
    "a value that is used again": (
        "pass", "x", "x = x / x.norm(dim=1, keepdim=True)\n        return F.normalize(x, dim=-1) + torch.max(x, dim=2, keepdim=True)[0]",
        IMAGE,
    ),
    "broadcast outward": (
        "self.bias = nn.Parameter(torch.randn(1, 4, 1))", "x", "x = x.sum(dim=1, keepdim=True)\n        return x + self.bias",
        "torch.randn(3, 2, 5)",
    ),
    "losses": (
        "pass", "x, y, z",
        "a = F.triplet_margin_loss(x, y, z) + F.mse_loss(x, y)\n        return a * F.cosine_similarity(x, z, dim=1).mean() - "
        "F.smooth_l1_loss(x, z, beta=0.5)", ", ".join(["torch.randn(4, 9)"] * 3),
    ),
    "bounds and triangles": (
        "pass", "x, y", "x = torch.min(torch.clamp(x, min=-1.0), torch.tensor(0.5))\n        return torch.tril(torch.matmul(x, y)) ** 2",
        "torch.randn(5, 4), torch.randn(4, 5)",
    ),
    "sizes and views": (
        "self.norm = nn.GroupNorm(2, 4)", "x",
        "b, c, h, w = x.shape\n        x = self.norm(x).view(b, c, h * w)\n        x = F.glu(x.transpose(1, 2), dim=-1)\n        "
        "return torch.cat([x, x.cumsum(1)], dim=1)", "torch.randn(2, 4, 3, 5)",
    ),
    "a value that two branches read": (
        "self.gate = nn.Linear(6, 4)\n        self.up = nn.Linear(6, 4)\n        self.act = nn.SiLU()\n        self.down = nn.Linear(4, 6)",
        "x", "x = self.act(self.gate(x)) * self.up(x)\n        return self.down(x)", "torch.randn(5, 6)",
    ),
    "parts that are put together": (
        "pass", "x, c, s", "a, b = x.chunk(2, dim=-1)\n        return torch.cat((a * c - b * s, b * c + a * s), dim=-1)",
        "torch.randn(3, 8), torch.randn(4), torch.randn(4)",
    ),
    "several results": (
        "self.s = 0.3", "x, y", "total = x + y * self.s\n        top, at = torch.max(total * 2.0, dim=1)\n        "
        "return torch.relu(total), total, top, at, x", "torch.randn(3, 5), torch.randn(3, 5)",
    ),
    "rows of a table": (
        "self.table = nn.Embedding(9, 4)\n        self.more = nn.Parameter(torch.randn(9, 4))", "i, w",
        "x = self.table(i) * w[..., None]\n        return (x + F.embedding(i, self.more)).sum(dim=1)",
        "torch.randint(0, 9, (3, 5)), torch.randn(3, 5)",
    ),
    "masks": (
        "self.fill = -7.0", "x, m", "y = torch.where(m, torch.full_like(x, self.fill), x.clamp(-0.5, 0.5))\n        "
        "return y - x.masked_fill(m, self.fill)", "torch.randn(3, 5), torch.rand(3, 5) < 0.4",
    ),
    "layers in a row and one that does nothing": (
        "self.net = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Dropout(0.2), nn.Linear(8, 6))\n        self.drop = nn.Dropout(0.0)\n"
        "        self.eval()", "x", "return x + self.drop(self.net(x))", "torch.randn(4, 6)",
    ),
    "zeros in front and a mask by zero": (
        "self.register_buffer('mask', torch.tril(torch.ones(5, 5)))", "x",
        "x = torch.cat([torch.zeros_like(x[:, :1]), x.cumsum(1)[:, :-1]], dim=1)\n        return x.masked_fill(self.mask == 0, -2.0)",
        "torch.randn(5, 5)",
    ),
}  # fmt: skip


def problem(name: str) -> Problem:
    layers, inputs, body, draws = CASES[name]
    return Problem(name=name, source=MODULE.format(layers=layers, inputs=inputs, body=body, draws=draws))


def test_files_compute_what_the_modules_do() -> None:
    pairs = [(problem(name).source, written(problem(name))) for name in CASES]
    assert interpreted.run(CHECK.format(pairs=pairs)).strip().endswith("right")


def test_steps_stand_one_a_line_and_calls_follow_the_module() -> None:
    text = written(problem("a convolution and more"))
    kernel = text[text.index("def steps_kernel") : text.index("def steps(")]
    assert [line.strip() for line in kernel.split("\n") if " tl." not in line][1:4] == ["x = relu(x)", "x = x * a", "x = x + y"]
    forward = text[text.index("    def forward") :]
    assert "x = conv_layer(x, self.conv)" in forward
    assert "x = steps(x, self.bias, self.k)" in forward
    assert "logsumexp(x, [1], True)" in forward


def test_the_compiler_takes_over_what_has_no_steps() -> None:
    source = MODULE.format(layers="pass", inputs="x", body="return torch.einsum('ij,kj->ik', x, x)", draws="torch.randn(4, 5)")
    other = Problem(name="einsum", source=source)
    with pytest.raises(Unsupported):
        written(other)
    assert "ModelNew" in next(Compiler(steps=True).write_here(other, 1)).source
