"""Takes the last by a reduction of values with their places, in whatever order they meet."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "last_positive"
EXPECT = "correct"


@triton.jit
def later(a, i, b, j):
    return tl.where(i > j, a, b), tl.maximum(i, j)


@triton.jit
def last_kernel(x_ptr, y_ptr, length, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    t = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * length + t, mask=t < length, other=0.0)
    value, place = tl.reduce((tl.maximum(x, 0.0), tl.where(x > 0, t, -1)), 0, later)
    tl.store(y_ptr + row, value)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.shape[0], device=x.device)
        last_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
