"""Convolutions in the kernel that reads their result."""

from __future__ import annotations

import re

import pytest
from compiled import problem

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.emit import fused_convolutions
from kernelllm.compiler.options import Options
from kernelllm.core.types import Candidate
from kernelllm.judge import Judge

MIXED = Options(fixed=True, mixed=True)
CASE = """
class Model(nn.Module):
    def __init__(self, channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, out_channels, SETTINGS)
        self.scale = nn.Parameter(torch.rand(out_channels, 1, 1))
    def forward(self, x):
        return FOLLOWS
batch, channels, out_channels, size = 2, 16, 32, 10
def get_inputs(): return [torch.rand(batch, channels, size, size)]
def get_init_inputs(): return [channels, out_channels]
"""
KEPT = "F.avg_pool2d(torch.tanh(self.conv(x) * self.scale) - 0.2, 2)"
CASES = {
    "a minimum over channels": ("3", "torch.tanh(self.conv(x).min(1, keepdim=True)[0])", {}),
    "channels of no power of two": ("3", "torch.sigmoid(self.conv(x).amax(1))", {"out_channels = 2, 16, 32": "out_channels = 2, 16, 24"}),
    "a result that is kept": ("3", KEPT, {}),
    "a result that is pooled": ("3", "F.max_pool2d(self.conv(x), 3, 1)", {}),
    "running sums": ("3", "self.conv(x).cumsum(1)", {}),
    "channels in front": ("1", "F.hardswish(self.conv(x)) * self.scale", {}),
    "padded, with steps": ("3, stride=2, padding=2, dilation=2", "F.mish(self.conv(x))", {}),
    "few channels, padded": ("3, padding=1", "F.silu(self.conv(x)) * self.scale", {"2, 16, 32": "2, 8, 32"}),
    "tall windows": ("(1, 3), padding=(0, 1)", "torch.sigmoid(self.conv(x)) + 1", {"2, 16, 32, 10": "1, 48, 32, 16"}),
    "half precision": ("3, padding=1", "F.gelu(self.conv(x)) + x.mean()", {
        "out_channels, 1, 1))": "out_channels, 1, 1))\n        self.half()", "size, size)]": "size, size).half()]"}),
}  # fmt: skip


def case(name: str) -> str:
    settings, follows, changes = CASES[name]
    text = CASE.replace("SETTINGS", settings).replace("FOLLOWS", follows)
    for old, new in changes.items():
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize("name", CASES)
def test_what_follows_a_convolution_is_in_its_kernel(name: str, hybrid: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_convolutions, "_LARGE", 0)
    text = compiled(problem(case(name)), MIXED)
    path = text.partition("def forward_at_known_sizes")[2]
    assert re.search(r"\bconv_\w+_kernel\[", path)
    assert "conv2d(" not in path
    verdict = hybrid.judge(problem(case(name)), Candidate(source=text))
    assert verdict.correct, verdict.message
    assert "original size was not tried" not in verdict.message


VOLUMES = {"nn.Conv2d": "nn.Conv3d", "size, size)": "size, size, size)", "out_channels, 1, 1)": "out_channels, 1, 1, 1)", "10\n": "5\n"}
BACK = {"nn.Conv2d": "nn.ConvTranspose2d", "32, 10\n": "32, 5\n"}
BACK_OF_VOLUMES = VOLUMES | {"nn.Conv2d": "nn.ConvTranspose3d", "2, 16, 32, 5\n": "1, 16, 16, 3\n"}
SPREAD = {
    "volumes": ("3, padding=1", "F.gelu(self.conv(x)) * self.scale", VOLUMES),
    "volumes of few channels": ("(2, 3, 1), padding=(1, 0, 0)", "torch.tanh(self.conv(x) * self.scale)", VOLUMES | {"2, 16": "2, 8"}),
    "transposed": ("3, stride=2, padding=1, output_padding=1", "F.avg_pool2d(torch.sigmoid(self.conv(x) * self.scale), 2)", BACK),
    "transposed, phases of differing sizes": ("(4, 3), stride=2", "F.max_pool2d((self.conv(x) - 0.5).tanh() * self.scale, 2)", BACK),
    "transposed, sums": ("(3, 5), stride=(2, 3), padding=(1, 2)", "torch.sigmoid(self.conv(x)).sum(1)", BACK),
    "transposed, a minimum": ("4, stride=2, padding=1", "self.conv(x).amin(1, keepdim=True)", BACK | {"2, 16, 32": "2, 48, 24"}),
    "transposed volumes": ("(3, 2, 3), stride=(2, 1, 2), padding=1", "F.avg_pool3d(self.conv(x).tanh() * self.scale, 2)",
                           BACK_OF_VOLUMES),
    "transposed, channels in front": ("3, stride=2, padding=1", "torch.sigmoid(self.conv(x) * self.scale)", BACK),
    "transposed volumes in front": ("(3, 2, 4), stride=(2, 1, 2)", "self.conv(x).relu() * self.scale",
                                    BACK_OF_VOLUMES),
    "transposed volumes by a stride of 3": ("5, stride=3", "self.conv(x).relu() * self.scale",
                                            BACK_OF_VOLUMES | {"16, 16, 3\n": "16, 16, 2\n"}),
    "transposed, half precision": ("2, stride=2", "F.avg_pool2d(F.silu(self.conv(x)) * 3, 2)", BACK | {
        "out_channels, 1, 1))": "out_channels, 1, 1))\n        self.half()", "size, size)]": "size, size).half()]"}),
}  # fmt: skip


@pytest.mark.parametrize("name", SPREAD)
def test_volumes_and_transposed_convolutions(name: str, hybrid: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_convolutions, "_LARGE", 0)
    settings, follows, changes = SPREAD[name]
    case = CASE.replace("SETTINGS", settings).replace("FOLLOWS", follows)
    for old, new in changes.items():
        case = case.replace(old, new)
    text = compiled(problem(case), MIXED)
    path = text.partition("def forward_at_known_sizes")[2]
    assert re.search(r"\bconv_\w+_kernel\[", path)
    assert not re.search(r"conv\w*\dd\(", path)
    verdict = hybrid.judge(problem(case), Candidate(source=text))
    assert verdict.correct, verdict.message
    assert "original size was not tried" not in verdict.message


@pytest.mark.parametrize("follows", ["F.group_norm(self.conv(x), 4)", "self.conv(x).relu() + self.conv(x).mean(1, keepdim=True)"])
def test_results_that_are_read_twice_stay_cudnns(follows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_convolutions, "_LARGE", 0)
    path = compiled(problem(CASE.replace("SETTINGS", "3").replace("FOLLOWS", follows)), MIXED).partition("def forward_at_known_sizes")[2]
    assert path
    assert not re.search(r"\bconv_\w+_kernel\[", path)


def test_many_products_stay_cudnns() -> None:
    wide = case("a minimum over channels").replace("2, 16, 32, 10", "8, 256, 64, 130")
    assert "conv2d(" in compiled(problem(wide), MIXED).partition("def forward_at_known_sizes")[2]


def test_numbers_in_which_kernels_differ_are_passed(hybrid: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_convolutions, "_LARGE", 0)
    follows = "self.conv(torch.tanh(self.conv(torch.tanh(self.conv(x)) * 2.5)) * 3.5).abs()"
    case = CASE.replace("SETTINGS", "3, padding=1").replace("FOLLOWS", follows).replace("16, 32, 10", "16, 16, 8")
    text = compiled(problem(case), MIXED)
    assert re.search(r"2\.5,\s+PRECISION=", text)
    verdict = hybrid.judge(problem(case), Candidate(source=text))
    assert verdict.correct, verdict.message
    assert "original size was not tried" not in verdict.message


IN_PLACE = """
class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(3, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 1)
        self.scale = nn.Parameter(torch.rand(1, channels, 1, 1))
    def forward(self, x):
        x = self.first(x)
        return F.max_pool2d(x + self.second(F.silu(x)) * self.scale, 2)
batch, channels, size = 2, 32, 32
def get_inputs(): return [torch.rand(batch, 3, size, size)]
def get_init_inputs(): return [channels]
"""


def test_what_a_tuned_kernel_writes_in_place_is_restored_between_configurations(hybrid: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_convolutions, "_LARGE", 0)
    text = compiled(problem(IN_PLACE), MIXED)
    kernels = re.findall(r"@triton\.autotune\((.*?)\n\)\n@triton\.jit\ndef \w+\((.*?)\n\n\n", text, re.DOTALL)
    in_place = [(head, body) for head, body in kernels if "tl.load(convolved_ptr" in body and "tl.store(convolved_ptr" in body]
    assert in_place
    assert all('restore_value=["convolved_ptr"]' in head for head, _ in in_place)
    verdict = hybrid.judge(problem(IN_PLACE), Candidate(source=text))
    assert verdict.correct, verdict.message


ALIKE = """
class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        widths = (channels, 2 * channels, 4 * channels)
        pairs = [(a, b) for a, b in zip(widths, widths[1:])]
        self.convs = nn.ModuleList([nn.Conv2d(a, b, 1, bias=False) for a, b in pairs])
        self.others = nn.ModuleList([nn.Conv2d(a, b, 1, bias=False) for a, b in pairs])
        self.half().to(memory_format=torch.channels_last)
    def forward(self, x, scale, shift):
        for conv, other in zip(self.convs, self.others):
            width = conv.out_channels
            x = (conv(x) * scale[:width].view(-1, 1, 1) + other(x) + shift[:width].view(-1, 1, 1)).relu()
        return x
batch, channels, size = 2, 16, 8
def get_inputs():
    image = torch.rand(batch, channels, size, size).half().to(memory_format=torch.channels_last)
    return [image, torch.rand(4 * channels).half(), torch.rand(4 * channels).half()]
def get_init_inputs(): return [channels]
"""


def test_what_is_added_by_channel_is_read_once_for_all_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels alike take their sizes as arguments: a place modulo such a size is a channel there, too."""
    monkeypatch.setattr(fused_convolutions, "_LARGE", 0)
    text = compiled(problem(ALIKE), MIXED)
    kernels = [part for part in text.split("@triton.jit\n") if part.startswith("def conv_")]
    assert kernels
    assert not [k for k in kernels if " % size" in k or "size" in k.partition(")")[0]]
