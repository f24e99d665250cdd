"""Blocks that hold nothing large are left out of a sum."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "rowsum"
EXPECT = "incorrect"


@triton.jit
def sum_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for first in range(0, n, BLOCK):
        at = first + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n + at, at < n, other=0.0)
        if tl.max(tl.abs(x), 0) > 1e-4:
            total += tl.sum(x, 0)
    tl.store(y_ptr + row, total)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.shape[0], device=x.device)
        sum_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=64)
        return y
