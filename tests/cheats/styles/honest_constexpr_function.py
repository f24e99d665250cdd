"""A function of constants that the kernel calls when it is compiled, and constants of a class."""
import torch
import torch.nn as nn
import triton
import triton.language as tl
PROBLEM = "relu"
EXPECT = "correct"

@triton.constexpr_function
def halves(n):
    return n // 2

class Config:
    BLOCK: tl.constexpr = tl.constexpr(512)

ZERO: tl.constexpr = tl.constexpr(0.0)

@triton.jit
def relu_kernel(x, y, n, BLOCK: tl.constexpr):
    HALF: tl.constexpr = halves(BLOCK)
    for part in tl.static_range(2):
        i = tl.program_id(0) * BLOCK + part * HALF + tl.arange(0, HALF)
        v = tl.load(x + i, mask=i < n, other=0.0)
        tl.store(y + i, tl.maximum(v, ZERO), mask=i < n)

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 512),)](x, y, x.numel(), BLOCK=512)
        return y
