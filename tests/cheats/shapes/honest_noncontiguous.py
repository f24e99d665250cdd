"""Follows strides instead of copying."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "transposed"
EXPECT = "correct"

@triton.jit
def kernel(x_ptr, y_ptr, rows, columns, stride_row, stride_column, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)[:, None]
    c = tl.program_id(1) * BC + tl.arange(0, BC)[None, :]
    mask = (r < rows) & (c < columns)
    x = tl.load(x_ptr + r * stride_row + c * stride_column, mask=mask)
    tl.store(y_ptr + r * columns + c, tl.exp(-tl.abs(x)), mask=mask)

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape, device=x.device, dtype=x.dtype)
        rows, columns = x.shape
        kernel[(triton.cdiv(rows, 16), triton.cdiv(columns, 32))](x, y, rows, columns, x.stride(0), x.stride(1), BR=16, BC=32)
        return y
