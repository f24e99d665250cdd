"""Atomic additions into an output that starts at zero."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "rowsum"
EXPECT = "correct"

@triton.jit
def add_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0)
    tl.atomic_add(y_ptr + row, tl.sum(x, axis=0))

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.zeros(rows, device=x.device, dtype=x.dtype)
        add_kernel[(rows, triton.cdiv(columns, 128))](x, y, columns, BLOCK=128)
        return y
