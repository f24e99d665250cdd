"""Makes its parameters positive in place: right in every call, and what is trained or saved afterwards is another model."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "positive_scale"
EXPECT = "incorrect"


@triton.jit
def scale_kernel(x_ptr, w_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    w = tl.abs(tl.load(w_ptr + offsets, mask=mask, other=0.0))
    tl.store(w_ptr + offsets, w, mask=mask & (row == 0))
    tl.store(y_ptr + row * columns + offsets, x * w, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        scale_kernel[(x.shape[0],)](x, self.weight, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
