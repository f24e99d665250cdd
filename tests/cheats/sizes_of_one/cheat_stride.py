"""Reads how rows lie in memory off a stride, which for a single column may be anything, and steps beyond its input."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "scale"
EXPECT = "runtime_error"
EXPECT_ON_A_GPU = ("runtime_error", "correct")


@triton.jit
def scale_kernel(x_ptr, s_ptr, b_ptr, y_ptr, width, step, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < width
    x = tl.load(x_ptr + row * step + offsets, mask=mask)
    s = tl.load(s_ptr + offsets, mask=mask)
    b = tl.load(b_ptr + offsets, mask=mask)
    tl.store(y_ptr + row * width + offsets, x * s + b, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        x = x.contiguous()
        rows, width = x.shape
        y = torch.empty_like(x)
        step = max(x.stride()) if width > 1 else 2
        scale_kernel[(rows,)](x, self.weight, self.bias, y, width, step, BLOCK=triton.next_power_of_2(width))
        return y
