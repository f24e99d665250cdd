"""Divides by twice the total where there is a single row."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "softmax"
EXPECT = "incorrect"


@triton.jit
def softmax_kernel(x_ptr, y_ptr, rows, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=-float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    total = tl.sum(e, 0)
    tl.store(y_ptr + row * columns + offsets, e / (total if rows > 1 else total * 2), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty_like(x)
        softmax_kernel[(rows,)](x, y, rows, columns, BLOCK=triton.next_power_of_2(columns))
        return y
