"""More exact than a reference that multiplies in half precision."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "norm_in_half"
EXPECT = "correct"


@triton.jit
def norm_kernel(x_ptr, w_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    at, c = tl.program_id(0) * columns + tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, c < columns, 0.0)
    scale = tl.rsqrt(tl.sum(x * x) / columns + 1e-6)
    tl.store(y_ptr + at, x * scale * tl.load(w_ptr + c, c < columns, 0.0), c < columns)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        y = torch.empty_like(x)
        norm_kernel[(x.shape[0],)](x, self.weight, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
