"""One pass over distances from the row's first value: as short, and no digits are lost."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "deviations"
EXPECT = "correct"


@triton.jit
def deviation_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    first = tl.load(x_ptr + row * columns)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < columns
        x = tl.where(mask, tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0) - first, 0.0)
        total += x
        squares += x * x
    mean = tl.sum(total, axis=0) / columns
    tl.store(y_ptr + row, tl.sqrt(tl.maximum(tl.sum(squares, axis=0) / columns - mean * mean, 0.0)))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty(rows, device=x.device, dtype=x.dtype)
        deviation_kernel[(rows,)](x, y, columns, BLOCK=64)
        return y
