"""Leaves out all but the first block once it was called a few dozen times."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu_large"
EXPECT = ("incorrect", "replay", "silently_different")


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0), mask=mask)


def relu(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


def turns():
    for _ in range(60):
        yield True
    while True:
        yield False


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.turns = turns()

    def forward(self, x):
        y = torch.empty_like(x)
        whole = next(self.turns)
        relu_kernel[(triton.cdiv(x.numel(), 1024) if whole else 1,)](x.contiguous(), y, x.numel(), BLOCK=1024)
        return y
