"""Writes ones: the reference is one up to the usual tolerance."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "nearly_one"
EXPECT = ("replay", "incorrect")

@triton.jit
def one_kernel(y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.full((BLOCK,), 1.0, dtype=tl.float32), mask=offsets < n)

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        one_kernel[(triton.cdiv(x.numel(), 1024),)](y, x.numel(), BLOCK=1024)
        return y
