"""Sums and sums of squares of each channel, as many fused batch normalisations have them, without anything taken off before."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "deviations"
EXPECT = "incorrect"


@triton.jit
def deviation_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0)
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
