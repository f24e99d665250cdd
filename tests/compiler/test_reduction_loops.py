"""Kernels of several reductions: how many loops they take, and what they store."""

from __future__ import annotations

import ast

from compiled import lowered

from kernelllm.compiler.inductor.wrapper_lines import Allocate
from kernelllm.compiler.options import Options

AS_TORCH = Options(extern="allow", symbolic=False)

TWO_SUMS = """
class Model(nn.Module):
    def forward(self, a, b, gain, weight):
        x, y = a.float() * gain, b.float() * gain
        x = x - x.sum(-1, keepdim=True) * a
        y = y - y.sum(-1, keepdim=True) * b
        return x.half() @ weight, y.half() @ weight
rows, width, out = 2048, 40000, 64
def get_inputs(): return [*(torch.randn(rows, width).half() for _ in "ab"), torch.randn(width), torch.randn(width, out).half()]
def get_init_inputs(): return []
"""

CHUNKED_LOSS = """
class Model(nn.Module):
    def __init__(self, width, words):
        super().__init__()
        self.head = nn.Linear(width, words, bias=False, dtype=torch.bfloat16)
    def forward(self, x, labels, weight):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            labels, kept = labels[:, 1:], labels[:, 1:] != -100
            parts = zip(x[:, :-1].chunk(2, 1), labels.masked_fill(~kept, 0).chunk(2, 1))
            each = [F.cross_entropy(self.head(h).float().transpose(1, 2), t, reduction="none") for h, t in parts]
            loss = ((torch.cat(each, 1) * kept).sum(-1) * weight).sum()
            return torch.autograd.grad(loss, [x, self.head.weight])
batch, rows, width, words = 8, 257, 64, 32000
def get_inputs():
    return [torch.randn(batch, rows, width, dtype=torch.bfloat16), torch.randint(0, words, (batch, rows)), torch.rand(batch)]
def get_init_inputs(): return [width, words]
"""


def test_two_sums_of_rows_and_what_follows_them_take_two_loops():
    (kernel,) = [k.text for k in lowered(TWO_SUMS, AS_TORCH).wrapper.kernels.values() if "for r0_offset in" in k.text]
    assert kernel.count("for r0_offset in") == 2


def test_gradients_of_a_loss_in_chunks_are_stored_in_half_precision_alone():
    steps = [step for step in lowered(CHUNKED_LOSS, AS_TORCH).wrapper.steps if isinstance(step, Allocate)]
    assert {step.dtype for step in steps if "32000" in ast.unparse(step.size)} == {"torch.bfloat16"}


SOFTENED = """
class Model(nn.Module):
    def forward(self, x, centre):
        p = torch.softmax((x.float() - centre) / 0.07, -1)
        return (p * x).sum(-1), (p * p.log()).sum(-1)
rows, width = 256, 20000
def get_inputs(): return [torch.randn(rows, width).half(), torch.randn(width)]
def get_init_inputs(): return []
"""


def test_a_softmax_of_scaled_rows_finds_maximum_and_sum_in_one_pass_and_stores_no_row():
    wrapper = lowered(SOFTENED, Options(extern="allow", symbolic=False, mixed=True)).wrapper
    assert all("isinf" not in kernel.text and "any(" not in kernel.text for kernel in wrapper.kernels.values())
    assert any("online_softmax" in kernel.text for kernel in wrapper.kernels.values())
    assert not [step for step in wrapper.steps if isinstance(step, Allocate) and step.size == ("256", "20000")]


PAIRS_OF_CHUNKS = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.bias = nn.Parameter(torch.tensor(2.3)), nn.Parameter(torch.tensor(-10.0))
    def forward(self, x, y):
        with torch.enable_grad():
            x, total = x.detach().requires_grad_(), 0.0
            for a, b in zip(x.chunk(2), y.chunk(2)):
                logits = a @ b.t() * self.scale.exp() + self.bias
                total = total - F.logsigmoid(logits * (2 * torch.eye(a.shape[0]) - 1)).sum()
            return torch.autograd.grad(total / x.shape[0], [x, self.scale, self.bias])
def get_inputs(): return [torch.randn(batch, width), torch.randn(batch, width)]
batch, width = 2048, 32
"""


def test_squares_of_quotients_of_sizes_are_lowered_for_any_size():
    kernels = lowered(PAIRS_OF_CHUNKS, Options(extern="allow")).wrapper.kernels
    assert not any("quotient" in kernel.text for kernel in kernels.values())
