"""Masked lanes that were given no value are replaced before they count."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "rowsum"
EXPECT = "correct"


@triton.jit
def sum_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask)
    x = tl.where(mask, x, 0.0)
    tl.store(y_ptr + row, tl.sum(x, 0))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = x.new_empty(x.shape[0])
        sum_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
