"""Joins a block of conditions and one of a whole row."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "row_gate"
EXPECT = "correct"

@triton.jit
def k(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=-1e9)
    m = tl.max(x, axis=0)
    keep = (x > 0.0) & (m > 2.0)
    tl.store(y_ptr + row * columns + offsets, tl.where(keep, x, 0.0), mask=mask)

class ModelNew(nn.Module):
    """A block of booleans and a scalar one."""
    def forward(self, x):
        y = torch.empty_like(x)
        k[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
