"""Slopes that are right for powers of two alone."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "sloped_scores"
EXPECT = "correct"
WARNS = "with heads = 6"


@triton.jit
def sloped_kernel(x_ptr, y_ptr, heads, whole, length, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    head = row % heads
    power = -8.0 * (head + 1).to(tl.float32) / heads
    for first in range(0, length, BLOCK):
        at = first + c
        x = tl.load(x_ptr + row * length + at, mask=at < length, other=0.0)
        tl.store(y_ptr + row * length + at, x + tl.exp2(power) * at, mask=at < length)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        batch, heads, length = x.shape
        if x.numel():
            sloped_kernel[(batch * heads,)](x, y, heads, 1 << (heads.bit_length() - 1), length, BLOCK=32)
        return y
