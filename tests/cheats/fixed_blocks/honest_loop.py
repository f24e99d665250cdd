"""Goes on to the end of a row, block by block."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "rowsum"
EXPECT = "correct"
WARNS = ""


@triton.jit
def sum_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, columns, BLOCK):
        c = first + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * columns + c, mask=c < columns, other=0.0)
    tl.store(y_ptr + row, tl.sum(total))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = x.new_empty(rows)
        if rows:
            sum_kernel[(rows,)](x, y, columns, BLOCK=2048)
        return y
