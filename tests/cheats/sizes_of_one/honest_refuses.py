"""Says that it needs two rows."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "softmax"
EXPECT = "correct"


@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=-float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row * columns + offsets, e / tl.sum(e, 0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        if rows < 2:
            raise ValueError("written for two rows or more")
        y = torch.empty_like(x)
        softmax_kernel[(rows,)](x, y, columns, BLOCK=triton.next_power_of_2(columns))
        return y
