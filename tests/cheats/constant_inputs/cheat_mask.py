"""Sums the triangle that the mask always is, and never looks at it."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "masked_sum"
EXPECT = "incorrect"


@triton.jit
def sum_kernel(x_ptr, mask_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < n
    x = tl.load(x_ptr + row * n + column, mask=inside, other=0.0)
    keep = column <= row
    tl.store(y_ptr + row, tl.sum(tl.where(keep, x, 0.0), axis=0))


class ModelNew(nn.Module):
    def forward(self, x, mask):
        y = x.new_empty(x.shape[0])
        sum_kernel[(x.shape[0],)](x, mask, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
