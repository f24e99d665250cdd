"""Operands in two halves, high and low, so that nothing is lost; a kernel in half precision that is never launched."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "scale"
EXPECT = "correct"


@triton.jit
def unused_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n).to(tl.bfloat16), mask=offsets < n)


@triton.jit
def scale_kernel(x_ptr, w_ptr, b_ptr, y_ptr, n, features, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0) / 64  # so that a million fits as well
    high = x.to(tl.float16)
    low = x - high.to(tl.float32)
    w = tl.load(w_ptr + offsets % features, mask=mask, other=0.0) * 64
    b = tl.load(b_ptr + offsets % features, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, high.to(tl.float32) * w + (low * w + b), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        n = y.numel()
        scale_kernel[(triton.cdiv(n, 256),)](x.contiguous(), self.weight, self.bias, y, n, x.shape[-1], BLOCK=256)
        return y
