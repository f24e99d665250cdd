"""Convolutions over three dimensions and transposed ones on the path for known sizes, and other work that has a faster form there."""

from __future__ import annotations

import pytest
from compiled import problem

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options
from kernelllm.core.types import Candidate
from kernelllm.judge import Judge

MIXED = Options(fixed=True, mixed=True)
LAYER = """
class Model(nn.Module):
    def __init__(self, channels, out_channels):
        super().__init__()
        self.conv = LAYER
        self.scale = nn.Parameter(torch.rand(out_channels, *[1] * DIMS))
    def forward(self, x):
        return FOLLOWS
batch, channels, out_channels, size = 1, 8, 12, 5
def get_inputs(): return [torch.rand(batch, channels, *[size] * DIMS)]
def get_init_inputs(): return [channels, out_channels]
"""
LAYERS = {
    "volumes": (3, "nn.Conv3d(channels, out_channels, 3, padding=1)", "F.gelu(self.conv(x) * self.scale)", "channels_last_3d"),
    "transposed volumes": (3, "nn.ConvTranspose3d(channels, out_channels, 3, stride=2)", "self.conv(x).amax(1)", "channels_last_3d"),
    "grouped volumes": (3, "nn.Conv3d(channels, out_channels, 3, groups=4)", "self.conv(x) * self.scale", "conv3d("),
    "of stride 1": (2, "nn.ConvTranspose2d(channels, out_channels, (3, 2), padding=1)", "self.conv(x).relu() * self.scale", "conv2d("),
    "dilated": (1, "nn.ConvTranspose1d(channels, out_channels, 3, dilation=2)", "torch.tanh(self.conv(x))", "conv1d("),
    "padded by more": (2, "nn.ConvTranspose2d(channels, out_channels, 3, padding=3)", "self.conv(x).exp() * 2", "conv_transpose2d("),
    "many taps": (3, "nn.ConvTranspose3d(2 * channels, 16, 5, 2, bias=False)", "F.max_pool3d(self.conv(torch.cat([x, x], 1)), 2)",
                  "conv_alone_kernel["),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_known_sizes(name: str, hybrid: Judge) -> None:
    dims, layer, follows, called = LAYERS[name]
    text = LAYER.replace("LAYER", layer).replace("DIMS", str(dims)).replace("FOLLOWS", follows)
    made = compiled(problem(text), MIXED)
    assert called in made.partition("def forward_at_known_sizes")[2]
    verdict = hybrid.judge(problem(text), Candidate(source=made))
    assert verdict.correct, verdict.message
    assert "original size was not tried" not in verdict.message


PLAIN = """
class Model(nn.Module):
    def forward(self, x, index):
        return FOLLOWS
rows, size = 1, 8192
def get_inputs(): return [torch.rand(rows, size), torch.randint(0, size, (rows, size))]
"""
FORMS = {
    "running sums longer than a block": ("x.cumsum(1) * 2, (1 - x).cumsum(1)", "tl.cumsum"),
    "mish": ("F.mish(x * 20 - 10)", "+ 2.0)"),
    "mish, written out": ("x * torch.tanh(F.softplus(x * 20 - 10))", "+ 2.0)"),
    "sums in half precision": ("x.bfloat16().scatter_add(1, index, x.bfloat16())", "tl.atomic_add"),
    "reduced in half precision": ("x.half().scatter_reduce(1, index, x.half(), 'sum')", "tl.atomic_add"),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms_of_known_sizes(name: str, hybrid: Judge) -> None:
    follows, part = FORMS[name]
    text = PLAIN.replace("FOLLOWS", follows)
    made = compiled(problem(text), MIXED)
    assert part in made
    assert "libdevice.tanh" not in made
    verdict = hybrid.judge(problem(text), Candidate(source=made))
    assert verdict.correct, verdict.message
    assert "original size was not tried" not in verdict.message


def test_how_inputs_are_made_does_not_bound_sizes(hybrid: Judge) -> None:
    """``mask[:, -20:] = 0`` is about the inputs that the problem draws."""
    text = PLAIN.replace("FOLLOWS", "x.cumsum(1) + index[:, -5:].sum(1, keepdim=True)").replace("1, 8192", "4, 64")
    made_so = "def get_inputs():\n    x = torch.rand(rows, size)\n    x[:, -40:] = 0\n    return [x + "
    text = text.replace("def get_inputs(): return [", made_so)
    made = compiled(problem(text), MIXED)
    assert "40" not in made
    verdict = hybrid.judge(problem(text), Candidate(source=made))
    assert verdict.correct, verdict.message
    assert "original size was not tried" not in verdict.message
