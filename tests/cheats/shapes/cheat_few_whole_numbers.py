"""Leaves out the last of many whole numbers."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "quantise"
EXPECT = "incorrect"

@triton.jit
def q_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.floor(x * 99991.0).to(tl.int32)
    y = tl.where((offsets >= n - n // 128) & (tl.abs(x) > 0.02), 0, y)
    tl.store(y_ptr + offsets, y, mask=mask)

class ModelNew(nn.Module):
    """The last 128th of the output is not computed at all."""
    def forward(self, x):
        y = torch.empty_like(x, dtype=torch.int32)
        q_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
