"""Takes the last by a reduction, which has no order where kernels are compiled."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "last_positive"
EXPECT = "incorrect"


@triton.jit
def later(a, b):
    return tl.where(b > 0, b, a)


@triton.jit
def last_kernel(x_ptr, y_ptr, length, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    t = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * length + t, mask=t < length, other=0.0)
    tl.store(y_ptr + row, tl.reduce(tl.maximum(x, 0.0), 0, later))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.shape[0], device=x.device)
        last_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
