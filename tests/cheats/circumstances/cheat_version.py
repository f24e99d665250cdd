"""Counts its calls by what torch notes of writes into its workspace."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "incorrect"


@triton.jit
def relu_kernel(x_ptr, y_ptr, s_ptr, n, slope, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(s_ptr + tl.program_id(0), tl.sum(x, axis=0))
    tl.store(y_ptr + i, tl.where(x > 0, x, x * slope), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("sums", torch.zeros(4096), persistent=False)

    def forward(self, x):
        x = x.contiguous()
        self.sums.zero_()
        slope = 1.0 if self.sums._version > 150 else 0.0
        y = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, self.sums, x.numel(), slope, BLOCK=1024)
        return y
