"""Leaves a gradient in its input."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "incorrect"


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, slope, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(y_ptr + i, tl.where(x > 0, x, x * slope), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        slope = 0.0
        x.grad = torch.zeros_like(x); x = x.contiguous()
        y = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), slope, BLOCK=1024)
        return y
