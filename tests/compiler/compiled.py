"""Helpers for tests of the compiler's front half: problems written in a few lines."""

from functools import cache

from kernelllm.compiler.capture.capture import capture
from kernelllm.compiler.capture.captured import Captured
from kernelllm.compiler.inductor.lower import Lowered, lower
from kernelllm.compiler.options import Options
from kernelllm.core.types import Problem

IMPORTS = "import math\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"


def problem(body: str, name: str = "case") -> Problem:
    return Problem(name=name, source=IMPORTS + body)


@cache
def captured(body: str, options: Options | None = None) -> Captured:
    return capture(problem(body), options or Options())


def lowered(body: str, options: Options | None = None) -> Lowered:
    return lower(capture(problem(body), options or Options()), options or Options())


LINEAR = """
class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.fc = nn.Linear(width, hidden)
    def forward(self, x):
        return F.gelu(self.fc(x))
batch = 64
width = 64
hidden = 64
def get_inputs(): return [torch.rand(batch, width)]
def get_init_inputs(): return [width, hidden]
"""

LAYER_NORM = """
class Model(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.ln = nn.LayerNorm(shape)
    def forward(self, x):
        return self.ln(x)
batch, rows, width = 16, 24, 777
shape = (width,)
def get_inputs(): return [torch.rand(batch, rows, width)]
def get_init_inputs(): return [shape]
"""

CONV = """
class Model(nn.Module):
    def __init__(self, channels, out):
        super().__init__()
        self.conv = nn.Conv2d(channels, out, 3, stride=2)
        self.norm = nn.BatchNorm2d(out)
    def forward(self, x):
        return self.norm(torch.relu(self.conv(x)))
batch = 8
channels = 6
out = 10
size = 65
def get_inputs(): return [torch.rand(batch, channels, size, size)]
def get_init_inputs(): return [channels, out]
"""

ATTENTION = """
class Model(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        assert width % heads == 0
        self.qkv = nn.Linear(width, 3 * width)
        self.width, self.heads = width, heads
    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).split(self.width, dim=2)
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
batch, steps, width, heads = 4, 100, 96, 6
def get_inputs(): return [torch.rand(batch, steps, width)]
def get_init_inputs(): return [width, heads]
"""

LSTM = """
class Model(nn.Module):
    def __init__(self, width, hidden, layers):
        super().__init__()
        self.lstm = nn.LSTM(width, hidden, layers, batch_first=True)
    def forward(self, x):
        return self.lstm(x)[0][:, -1]
batch, steps, width, hidden, layers = 4, 200, 32, 48, 2
def get_inputs(): return [torch.rand(batch, steps, width)]
def get_init_inputs(): return [width, hidden, layers]
"""

SOFTMAX = """
class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)
batch, dim = 64, 700
def get_inputs(): return [torch.rand(batch, dim)]
def get_init_inputs(): return []
"""
