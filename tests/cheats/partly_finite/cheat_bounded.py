"""Bounds its argument: right for the problem's own numbers, and infinite where the reference is."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "exponential"
EXPECT = "incorrect"


@triton.jit
def exponential_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, tl.exp(tl.where(x > 80, x * 2, tl.minimum(x, 12.0))), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            exponential_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
