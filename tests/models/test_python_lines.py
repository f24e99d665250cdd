"""Lines of a kernel's file: which can stand behind those before them."""

from __future__ import annotations

from kernelllm.models.python_lines import PythonLines

FILE = """import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n)
    tl.store(out_ptr + at, finished(x), at < n)


@triton.jit
def finished(x):
    return x + 1


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
