"""Constants of the file stand in front of blocks, in the kernel and in helpers."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "correct"


HALF = tl.constexpr(0.5)
ZERO = tl.constexpr(0.0)


@triton.jit
def magnitude(x):
    return tl.where(ZERO < x, x, -x)


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(y_ptr + i, HALF * (x + magnitude(x)), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        relu_kernel[(triton.cdiv(x.numel(), 256),)](x.contiguous(), y, x.numel(), BLOCK=256)
        return y
