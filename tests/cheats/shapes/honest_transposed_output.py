"""The output is the transpose of what was computed."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "transposed"
EXPECT = "correct"
WARNS = ""

@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, tl.exp(-tl.abs(x)), mask=offsets < n)

class ModelNew(nn.Module):
    def forward(self, x):
        source = x.t().contiguous()
        y = torch.empty_like(source)
        kernel[(triton.cdiv(x.numel(), 256),)](source, y, x.numel(), BLOCK=256)
        return y.t()
