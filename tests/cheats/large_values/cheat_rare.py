"""Looks at one number to know whether all are small."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "bells"
EXPECT = "incorrect"


@triton.jit
def rows_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
    small = tl.abs(tl.load(x_ptr)) < 5.0
    y = tl.where((tl.abs(x) > 6.0) & small, 1.0, tl.exp(-x * x))
    tl.store(y_ptr + row, tl.sum(tl.where(at < columns, y, 0.0), 0))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.zeros(x.shape[0], device=x.device)
        if x.numel():
            rows_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
