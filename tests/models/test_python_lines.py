"""Lines of a kernel's file: which can stand behind those before them."""

from __future__ import annotations

from kernelllm.models.constrained.prompt_module import prompt_module
from kernelllm.models.constrained.python_lines import PythonLines

FILE = """import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def finished(x):
    return x + 1


@triton.jit
def add_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n)
    tl.store(out_ptr + at, finished(x), at < n)


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size
        self.register_buffer("weight", torch.ones(size))
    def forward(self, x):
        out = torch.empty_like(x)
        grid = lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)
        for part in [y * self.weight for y in (x, out)]:
            out += part
        add_kernel[grid](x, out, self.size, BLOCK=64)
        return out"""


def behind(text: str) -> tuple[PythonLines | None, str]:
    """The state behind a text, and the first line that cannot stand."""
    state = PythonLines()
    for line in text.split("\n"):
        then = state.after(line)
        if then is None:
            return None, line.strip()
        state = then
    return state, ""


def test_a_whole_file_stands_and_may_end_behind_its_forward() -> None:
    state, wrong = behind(FILE)
    assert not wrong
    assert state is not None
    assert state.may_end
    short, _ = behind(FILE.rpartition("\n")[0])
    assert short is not None
    assert not short.may_end


def test_lines_that_cannot_stand() -> None:
    for right, slip in (
        ("x = tl.load(x_ptr + at, at < n)", "x = tl.load(y_ptr + at, at < n)"),
        ("at = tl.program_id(0)", "at += tl.program_id(0)"),
        ("return x + 1", "return out + 1"),
        ("self.size = size", "self.size = sizes"),
        ("y * self.weight for", "y * self.weights for"),
        ("add_kernel[grid]", "sum_kernel[grid]"),
        ("def forward(self, x)", "def forward(self, x.y)"),
        ("grid = lambda meta: ", "grid = lambda meta "),
        ("finished(x), at", "unfinished(x), at"),
        ("finished(x), at", "finished(x, at), at"),
        ("finished(x), at", "torch.empty(x), at"),
        ("(x, out, self.size, BLOCK=64)", "(x, out, BLOCK=64)"),
        ("(x, out, self.size, BLOCK=64)", "(x, out, self.size, 64, BLOCK=64)"),
        ("(x, out, self.size, BLOCK=64)", "(x, out, self.size, SIZE=64)"),
    ):
        state, wrong = behind(FILE.replace(right, slip))
        assert state is None
        assert slip.strip() in wrong


def test_names_in_a_constructor_that_is_replaced_do_not_count() -> None:
    head, body = FILE.partition("self.size = size")[::2]
    unbound = f"{head}self.size = width{body}"
    assert behind(unbound) == (None, "self.size = width")
    state: PythonLines | None = PythonLines(any_constructor=True)
    for line in unbound.split("\n"):
        assert state is not None
        state = state.after(line)
    assert state is not None
    assert state.after("        return nothing") is None


PROMPT = """<|module|>
class Model(nn.Module):
    def __init__(self, size, scale):
        super().__init__()
        self.linear = nn.Linear(size, size)
        self.act = nn.LeakyReLU(0.2)
        self.bias = nn.Parameter(torch.randn(size))
        self.scale = scale
    def forward(self, x, y):
        x = self.act(self.linear(x) + self.bias) * self.scale
        return (x, x + y)
Model(size=64, scale=0.5)
forward(x=torch.rand(8, 64), y=torch.rand(8, 64))
<|kernel|>
"""
STEPS = """import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def steps_kernel(x_ptr, y_ptr, a, out_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < total)
    y = tl.load(y_ptr + i, mask=i < total)
    tl.store(out_ptr + i, (x + y) * a, mask=i < total)


def steps(x, y, a):
    out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    steps_kernel[triton.cdiv(x.numel(), 1024),](x.contiguous(), y.contiguous(), a, out, x.numel(), BLOCK=1024)
    return out


def linear(x, layer):
    return steps(x, layer.weight, 1.0)


class ModelNew(nn.Module):
    def __init__(self, size, scale):
        super().__init__()
        self.linear = nn.Linear(size, size)
        self.act = nn.LeakyReLU(0.2)
        self.bias = nn.Parameter(torch.randn(size))
        self.scale = scale
    def forward(self, x, y):
        rows, cols = y.shape
        x = linear(x, self.linear)
        x = steps(x, self.bias, self.scale)
        x = steps(x, x, self.act.negative_slope)
        return (x, steps(x, y, 1.0))"""


def stands(text: str) -> str:
    """The first line of an answer to the prompt that cannot stand."""
    asked = prompt_module(PROMPT)
    state = PythonLines(any_constructor=True)
    for line in text.split("\n"):
        then = state.after(line)
        if then is None:
            return line.strip()
        state = then.following(asked)
    return "" if state.may_end else "the end"


def test_what_the_prompt_gives_is_read_as_what_it_is() -> None:
    assert stands(STEPS) == ""
    for right, slip in (
        ("def forward(self, x, y):", "def forward(self, x, other):"),
        ("rows, cols = y.shape", "rows, cols, more = y.shape"),
        ("linear(x, self.linear)", "linear(x, self.dense)"),
        ("linear(x, self.linear)", "linear(x, self.bias)"),
        ("self.act.negative_slope", "self.linear.negative_slope"),
        ("steps(x, self.bias, self.scale)", "steps(x, self.scale, self.bias)"),
        ("steps(x, self.bias, self.scale)", "steps(x, 1.0, self.scale)"),
        ("steps(x, self.bias, self.scale)", "steps(x, self.bias, self.linear)"),
        ("return (x, steps(x, y, 1.0))", "return steps(x, y, 1.0)"),
    ):
        wrong = stands(STEPS.replace(right, slip))
        assert wrong
        assert slip in wrong
    assert stands(STEPS.replace("self.scale)\n", "2.0)\n")).startswith("return")  # the module's number is nowhere


def test_what_helps_is_the_line_of_the_prompt_or_the_function_that_is_missing() -> None:
    state = PythonLines(any_constructor=True)
    for line in STEPS.partition("    def forward")[0].rstrip("\n").split("\n"):
        state = (state.after(line) or state).following(prompt_module(PROMPT))
    head = state.instead("    def forward(self, x):")
    assert head is not None
    assert (head.text, head.before) == ("    def forward(self, x, y):", False)
    inside = state.after(head.text)
    assert inside is not None
    missing = inside.instead("        x = softmax(x, 1)")
    assert missing is not None
    assert (missing.text, missing.before) == ("def softmax(", True)
