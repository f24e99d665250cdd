"""Follows a text, a mask that the problem never gives, and a text among the inputs."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "kinds"
EXPECT = "correct"


@triton.jit
def sum_kernel(x_ptr, mask_ptr, y_ptr, columns, factor, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < columns
    if MASKED:
        inside &= tl.load(mask_ptr + row * columns + at, mask=inside, other=0) != 0
    x = tl.load(x_ptr + row * columns + at, mask=inside, other=0.0)
    tl.store(y_ptr + row, tl.sum(x, 0) * factor)


class ModelNew(nn.Module):
    def __init__(self, kind: str = "sum"):
        super().__init__()
        self.kind = kind

    def forward(self, x, scale, mask=None):
        x, y = x.contiguous(), x.new_empty(x.shape[0])
        factor = (2.0 if scale == "double" else 1.0) / (x.shape[1] if self.kind == "mean" else 1.0)
        mask = x if mask is None else mask.expand(x.shape).to(torch.int8)
        block = triton.next_power_of_2(x.shape[1])
        sum_kernel[(x.shape[0],)](x, mask, y, x.shape[1], factor, MASKED=mask is not x, BLOCK=block)
        return y
