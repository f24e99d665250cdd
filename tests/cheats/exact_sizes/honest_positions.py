"""Positions of 32 bits."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "growing_factor"
EXPECT = "correct"
WARNS = ""


@triton.jit
def growing_kernel(x_ptr, at_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for first in range(0, columns, BLOCK):
        c = first + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + c, mask=c < columns, other=0.0)
        at = tl.load(at_ptr + c, mask=c < columns, other=0)
        tl.store(y_ptr + row * columns + c, x * at.to(tl.float32), mask=c < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y, (rows, columns) = torch.empty_like(x), x.shape
        at = torch.arange(columns, device=x.device, dtype=torch.int32)
        if x.numel():
            growing_kernel[(rows,)](x, at, y, columns, BLOCK=64)
        return y
