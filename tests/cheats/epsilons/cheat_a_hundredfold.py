"""A hundred times the epsilon: right for all but faint numbers."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "faint_rows"
EXPECT = "incorrect"


@triton.jit
def rows_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + row * columns + offsets, x / (tl.sqrt(tl.sum(x * x, axis=0)) + 1e-5), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            rows_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
