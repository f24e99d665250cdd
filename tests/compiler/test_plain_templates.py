"""Files to learn from: plain templates are right, and stand in every file as they are."""

from __future__ import annotations

import re

import interpreted
import pytest

from kernelllm.compiler.compiler_writer import Compiler
from kernelllm.core.types import Problem
from kernelllm.judge import Judge

MODULE = """import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, c, o, k, stride, padding):
        super().__init__()
        self.layer = nn.{layer}(c, o, k, stride=stride, padding=padding, groups=2, bias={bias})
    def forward(self, x):
        return self.layer(x)

def get_inputs():
    return [torch.rand(2, 4, {sizes})]

c, o, k, stride, padding = 4, 6, {k}, {stride}, {padding}

def get_init_inputs():
    return [c, o, k, stride, padding]
"""

RIGHT = """
import torch, torch.nn.functional as F
from kernelllm.compiler.stepwise.library import step_layers
from kernelllm.compiler.templates.plain import attending, products, windows
torch.manual_seed(0)

def same(found, right):
    torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-4)

for dims, sizes in ((1, (9,)), (2, (7, 6)), (3, (4, 5, 3))):
    x, bias = torch.randn(2, 4, *sizes), torch.randn(6)
    step, pad, dil = ([2] + [1] * (dims - 1), [1] * dims, [1] * (dims - 1) + [2])
    w, t = torch.randn(6, 2, *[2] * dims), torch.randn(4, 3, *[2] * dims)
    same(windows.conv(x, w, bias, step, pad, dil, 2), getattr(F, f"conv{dims}d")(x, w, bias, step, pad, dil, 2))
    right = getattr(F, f"conv_transpose{dims}d")(x, t, None, step, pad, 0, 2, dil)
    same(windows.conv_transpose(x, t, None, step, pad, [0] * dims, dil, 2), right)
    values, index = getattr(F, f"max_pool{dims}d")(x, 2, step, pad, 1, ceil_mode=True, return_indices=True)
    found = windows.max_pool_with_indices(x, [2] * dims, step, pad, [1] * dims, True)
    same(found[0], values)
    assert torch.equal(found[1], index)
    for counted in (True, False):
        same(windows.avg_pool(x, [2] * dims, step, pad, True, counted), getattr(F, f"avg_pool{dims}d")(x, 2, step, pad, True, counted))
    pool = getattr(torch.nn, f"MaxPool{dims}d")
    same(step_layers.max_pool_layer(x, pool(2, step)), pool(2, step)(x))
    assert torch.equal(step_layers.max_pool_layer(x, pool(2, step, return_indices=True))[1], pool(2, step, return_indices=True)(x)[1])
rounded = ((2, 3, 2, 1, True), (2, 9, 1, 1, True), (2, 8, 1, 1, False), (3, 3, 1, 1, False), (3, 9, 1, 1, True), (3, 16, 1, 2, False))
for dims, channels, step, groups, rounds in rounded:  # to TF32, as cuDNN
    x, w = torch.randn(2, channels, *[4] * dims), torch.randn(8, channels // groups, *[2] * dims)
    loose, exact = (windows.conv(x, w, None, [step] * dims, [0] * dims, [1] * dims, groups, allow) for allow in (True, False))
    assert torch.equal(loose, exact) != rounds
x, w = torch.full((1, 9, 1), 1 + 2**-11), torch.zeros(2, 9, 1)  # a tie goes to the even one: 1, and below 1 + 2**-9
w[:, 0] = 1 + 3 * 2**-11
assert windows.conv(x, w, None, [1], [0], [1], 1, True)[0, :, 0].tolist() == [1 + 2**-9] * 2
for groups in (1, 2):
    x, t = torch.randn(1, 4, 3, 3), torch.randn(4, 6 // groups, 2, 2)
    loose, exact = (windows.conv_transpose(x, t, None, [1, 1], [0, 0], [0, 0], [1, 1], groups, allow) for allow in (True, False))
    assert torch.equal(loose, exact) == (groups == 2)
long = torch.randn(1, 3, 4100), torch.randn(1, 4100, 2)
same(products.batched_matmul(*long), long[0] @ long[1])
a, b = torch.randn(2, 5, 70), torch.randn(2, 70, 3)
same(products.batched_matmul(a, b), a @ b)
same(products.matmul(a[0], b[0].T.contiguous().T, torch.arange(3.0)), a[0] @ b[0] + torch.arange(3.0))
q, k, v = torch.randn(2, 4, 3, 5), torch.randn(2, 2, 40, 5), torch.randn(2, 2, 40, 6)
of = lambda *more, **settings: F.scaled_dot_product_attention(q, k, v, *more, enable_gqa=True, **settings)
same(attending.attention(q, k, v), of())
same(attending.attention(q, k, v, is_causal=True, scale=0.3), of(is_causal=True, scale=0.3))
hidden = torch.rand(3, 40) > 0.5
same(attending.attention(q, k, v, hidden), of(hidden))
bias = torch.randn(4, 1, 40)
same(attending.attention(q, k, v, bias), of(bias))
print("right")
"""


REDUCTIONS = """
import torch, torch.nn.functional as F
from kernelllm.compiler.templates.plain import normalizing, reducing
torch.manual_seed(0)

def same(found, right):
    torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-4)

x = torch.randn(2, 4, 3, 70)
for dims in ([1], [-1], [2, 3], [0]):
    same(reducing.reduced(x, "mean", dims, True), x.mean(dims, keepdim=True))
    same(reducing.reduced(x, "max", dims), x.amax(dims))
    same(reducing.variance(x, dims, 1.0), x.var(dims))
same(reducing.reduced(x, "sum", []), x.sum())
same(reducing.reduced(x, "prod", [1]), x.prod(1))
holed = x.clone()
holed[0, 0, 0, 3] = float("nan")
torch.testing.assert_close(reducing.reduced(holed, "min", [3]), holed.amin(3), equal_nan=True)
for op, right in (("max", torch.argmax), ("min", torch.argmin)):
    assert torch.equal(reducing.with_index(x, op, 2)[1], right(x, 2))
    assert torch.equal(reducing.with_index(holed, op, None)[1], right(holed))
none = torch.randn(4, 0, 5)
for name, dims in (("mean", [1]), ("prod", [1]), ("mean", [2])):
    torch.testing.assert_close(reducing.reduced(none, name, dims), getattr(none, name)(*dims), equal_nan=True)
for name in ("cumsum", "softmax"):
    assert getattr(reducing, name)(none, 1).shape == none.shape
same(reducing.softmax(x, 1), x.softmax(1))
same(reducing.softmax(x, -1, True), x.log_softmax(-1))
for name in ("cumsum", "cumprod", "logcumsumexp"):
    same(getattr(reducing, name)(x, 1), getattr(torch, name)(x, 1))
for found, right in zip(reducing.cummax(holed, 3), torch.cummax(holed, 3), strict=True):
    torch.testing.assert_close(found, right, equal_nan=True)
w, b = torch.randn(4), torch.randn(4)
same(normalizing.group_norm(x, 2, w, b, 1e-5), F.group_norm(x, 2, w, b))
same(normalizing.instance_norm(x, w, None, 1e-3), F.instance_norm(x, weight=w, eps=1e-3))
v = torch.randn(3, 70)
same(normalizing.layer_norm(x, 2, v, v, 1e-5), F.layer_norm(x, (3, 70), v, v))
mean, variance = normalizing.channel_statistics(x)
same(normalizing.channel_norm(x, mean, variance, w, b, 1e-5), F.batch_norm(x, None, None, w, b, True))
print("right")
"""


def test_plain_templates_compute_what_torch_does() -> None:
    assert interpreted.run(RIGHT).strip() == "right"


def test_plain_reductions_compute_what_torch_does() -> None:
    assert interpreted.run(REDUCTIONS).strip() == "right"


def written(layer: str, **settings: object) -> str:
    source = MODULE.format(layer=layer, **settings)
    return next(Compiler(short=True, extern="forbid").write_here(Problem(name=layer, source=source), 1)).source


def test_settings_are_read_off_the_layer() -> None:
    """The templates are the same text whatever the layer's settings, and so is the class but for what the module itself says."""
    plain = written("Conv2d", bias=True, sizes="9, 8", k=3, stride=1, padding=0)
    other = written("Conv2d", bias=False, sizes="7, 9", k=2, stride=2, padding=1)
    assert other == plain.replace("bias=True", "bias=False")
    settings = ", ".join(f"self.layer.{name}" for name in ("weight", "bias", "stride", "padding", "dilation", "groups"))
    assert settings in " ".join(plain.split())
    assert "raise" not in plain


@pytest.mark.parametrize("layer", ["nn.MaxPool1d(k, stride)", "nn.AvgPool2d(k)", "nn.GroupNorm(2, c, eps=1e-3)", "nn.BatchNorm2d(c)"])
def test_a_layer_alone_has_no_number_of_its_own(layer: str) -> None:
    source = MODULE.replace("nn.{layer}(c, o, k, stride=stride, padding=padding, groups=2, bias={bias})", layer)
    source = source.format(sizes="9" if "1d" in layer else "9, 8", k=3, stride=2, padding=1)
    text = next(Compiler(short=True, extern="forbid").write_here(Problem(name="layer", source=source), 1)).source
    forward = text[text.index("def forward") :]
    calls = [line for line in forward.splitlines() if re.search(r"= (max_pool|avg_pool|group_norm|channel_norm)", line)]
    assert calls
    assert not re.search(r"(?<![\w.])(?:[3-9]|1e-0?[35])(?![\w.])", forward.partition(calls[-1])[2])


STACK = """
import torch
import torch.nn as nn


class Stack(nn.Sequential):
    def __init__(self, layers):
        super().__init__(*layers)


class Model(Stack):
    def __init__(self):
        super().__init__([nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.ReLU()])


def get_inputs():
    return [torch.randn(2, 3, 10, 10)]


def get_init_inputs():
    return []
"""


def test_layers_of_a_stack_are_found_by_their_numbers(judge: Judge) -> None:
    """A file whose constructor is made of names and shapes reads no settings off layers that it lacks."""
    wanted = Problem(name="stack", source=STACK)
    verdict = judge.judge(wanted, next(Compiler(short=True, extern="forbid").write_here(wanted, 1)))
    assert verdict.correct, verdict.message
