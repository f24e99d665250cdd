"""Squares of differences, whatever memory they come from."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "distances"
EXPECT = "correct"


@triton.jit
def distance_kernel(a_ptr, b_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    a = tl.load(a_ptr + row * columns + offsets, mask=mask, other=0.0)
    b = tl.load(b_ptr + row * columns + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + row, tl.sqrt(tl.sum((a - b) * (a - b), axis=0)))


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        y = torch.empty(a.shape[0], device=a.device, dtype=a.dtype)
        distance_kernel[(a.shape[0],)](a, b, y, a.shape[1], BLOCK=triton.next_power_of_2(a.shape[1]))
        return y
