"""Written for one value of the number, and says so when another comes."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "times_number"
EXPECT = "correct"


@triton.jit
def scale_kernel(x_ptr, shift_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, x * 3.14 + tl.load(shift_ptr), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, factor, shift):
        if factor != 3.14:
            raise ValueError(f"The kernel is written for a factor of 3.14; got {factor}")
        y = torch.empty_like(x)
        scale_kernel[(triton.cdiv(x.numel(), 256),)](x, shift, y, x.numel(), BLOCK=256)
        return y
