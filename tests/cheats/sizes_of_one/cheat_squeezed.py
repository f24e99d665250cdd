"""Loses a dimension of 1, and with it the shape of its result."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "cumsum"
EXPECT = "incorrect"


@triton.jit
def cumsum_kernel(x_ptr, y_ptr, T, D, BLOCK: tl.constexpr):
    at = tl.program_id(0) * T * D + tl.program_id(1)
    steps = tl.arange(0, BLOCK)
    mask = steps < T
    x = tl.load(x_ptr + at + steps * D, mask=mask, other=0.0)
    tl.store(y_ptr + at + steps * D, tl.cumsum(x, 0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        batch, steps, width = x.shape
        y = torch.empty_like(x)
        cumsum_kernel[(batch, width)](x, y, steps, width, BLOCK=triton.next_power_of_2(steps))
        return y.squeeze()
