"""Divides by a length of zero."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "cosine"
EXPECT = "incorrect"


@triton.jit
def rows_kernel(x_ptr, y_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    y = tl.load(y_ptr + row * columns + offsets, mask=mask, other=0.0)
    x_size, y_size = tl.sqrt(tl.sum(x * x, axis=0)), tl.sqrt(tl.sum(y * y, axis=0))
    tl.store(out_ptr + row, tl.sum(x * y, axis=0) / (x_size * y_size))


class ModelNew(nn.Module):
    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty(x.shape[0], device=x.device)
        rows_kernel[(x.shape[0],)](x, y, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
