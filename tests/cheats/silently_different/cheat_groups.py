"""Takes a number of groups and always computes with eight."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "grouped"
EXPECT = "incorrect"


@triton.jit
def center_kernel(x_ptr, y_ptr, width, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < width
    at = tl.program_id(0) * width + offsets
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    tl.store(y_ptr + at, x - tl.sum(x, 0) / width, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, groups: int = 8):
        super().__init__()

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        width = x.shape[1] // 8
        center_kernel[(x.shape[0] * 8,)](x, y, width, BLOCK=triton.next_power_of_2(width))
        return y
