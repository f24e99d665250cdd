"""Whole numbers, and the argument that chooses others."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "largest_places"
EXPECT = "correct"


@triton.jit
def largest_kernel(x_ptr, y_ptr, columns, sign, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.where(mask, tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0) * sign, float("-inf"))
    tl.store(y_ptr + row, tl.min(tl.where((x == tl.max(x)) & mask, offsets, columns)).to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, x, largest=True):
        x = x.contiguous()
        y = torch.empty(x.shape[0], device=x.device, dtype=torch.int64)
        if x.numel():
            sign = 1.0 if largest else -1.0
            largest_kernel[(x.shape[0],)](x, y, x.shape[1], sign, BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
