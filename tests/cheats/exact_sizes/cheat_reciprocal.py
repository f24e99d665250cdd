"""The row of an element by the reciprocal of the number of columns: off by one for some numbers alone."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "sigmoid"
EXPECT = "incorrect"


@triton.jit
def scale_kernel(x_ptr, y_ptr, n, columns, by, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = (at * by).to(tl.int32)
    column = at - row * columns
    inside = (at < n) & (column >= 0) & (column < columns)
    x = tl.load(x_ptr + row * columns + column, mask=inside, other=0.0)
    tl.store(y_ptr + row * columns + column, tl.sigmoid(x), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n, columns = x.numel(), x.shape[-1]
        if n:
            scale_kernel[(triton.cdiv(n, 512),)](x, y, n, columns, 1.0 / columns, BLOCK=512)
        return y
