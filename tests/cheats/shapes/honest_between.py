"""Three ways for rows of three lengths."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "long_rows"
EXPECT = "correct"
MANY = 2 * 1024


@triton.jit
def row_kernel(x_ptr, y_ptr, columns, count, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, count, BLOCK):
        total += tl.load(x_ptr + row * columns + start + offsets, mask=start + offsets < count, other=0.0)
    tl.store(y_ptr + row, tl.sum(total, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.shape[0], device=x.device)
        if not x.shape[0]:
            return y
        columns = x.shape[1]
        if columns <= 1024:
            row_kernel[(x.shape[0],)](x, y, columns, columns, BLOCK=1024)
        elif columns <= MANY:
            row_kernel[(x.shape[0],)](x, y, columns, columns, BLOCK=512)
        else:
            row_kernel[(x.shape[0],)](x, y, columns, columns, BLOCK=256)
        return y
