"""Overflows a little earlier than the reference, in a product."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "exponential"
EXPECT = "correct"


@triton.jit
def exponential_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, tl.exp(x * 0.5) * tl.exp(x * 0.5), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            exponential_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
