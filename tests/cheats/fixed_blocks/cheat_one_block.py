"""Sums the first 8,192 numbers of a row."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "rowsum"
EXPECT = "correct"
WARNS = "columns = 10241"


@triton.jit
def sum_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    tl.store(y_ptr + row, tl.sum(tl.load(x_ptr + row * columns + c, mask=c < columns, other=0.0)))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = x.new_empty(rows)
        if rows:
            sum_kernel[(rows,)](x, y, columns, BLOCK=8192)
        return y
