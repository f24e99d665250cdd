"""Makes its parameters positive in place: right in every call, and what is trained or saved afterwards is another model."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "positive_scale"
EXPECT = "incorrect"


@triton.jit
def positive_kernel(w_ptr, columns, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    tl.store(w_ptr + offsets, tl.abs(tl.load(w_ptr + offsets, mask=mask, other=0.0)), mask=mask)


@triton.jit
def scale_kernel(x_ptr, w_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    w = tl.load(w_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + row * columns + offsets, x * w, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[1])
        positive_kernel[(1,)](self.weight, x.shape[1], BLOCK=block)
        scale_kernel[(x.shape[0],)](x, self.weight, y, x.shape[1], BLOCK=block)
        return y
