"""Writes zeros: the reference is below the usual tolerance everywhere."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "tiny"
EXPECT = ("replay", "incorrect")

@triton.jit
def zero_kernel(y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.zeros((BLOCK,), dtype=tl.float32), mask=offsets < n)

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        zero_kernel[(triton.cdiv(x.numel(), 1024),)](y, x.numel(), BLOCK=1024)
        return y
