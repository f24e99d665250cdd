"""Gives the right output, and leaves the input that the reference writes into."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "decayed"
EXPECT = "incorrect"


@triton.jit
def decayed_kernel(average_ptr, x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    average = 0.9 * tl.load(average_ptr + offsets, mask=mask, other=0.0) + 0.1 * x
    tl.store(y_ptr + offsets, average * x, mask=mask)


class ModelNew(nn.Module):
    def forward(self, average, x):
        y = torch.empty_like(x)
        decayed_kernel[(triton.cdiv(x.numel(), 1024),)](average, x, y, x.numel(), BLOCK=1024)
        return y
