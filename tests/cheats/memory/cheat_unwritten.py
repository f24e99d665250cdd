"""Adds to memory that it never wrote."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "rowsum"
EXPECT = "incorrect"

@triton.jit
def split_kernel(x_ptr, s_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    part = tl.program_id(1)
    offsets = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0)
    tl.store(s_ptr + row * 64 + part, tl.sum(x, axis=0))

@triton.jit
def join_kernel(s_ptr, y_ptr):
    row = tl.program_id(0)
    tl.store(y_ptr + row, tl.sum(tl.load(s_ptr + row * 64 + tl.arange(0, 64)), axis=0))

class ModelNew(nn.Module):
    """Reads partial sums that nobody wrote; the scratch was allocated in __init__, where nothing is poisoned."""
    def __init__(self):
        super().__init__()
        self.scratch = torch.empty(2**22)
    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty(rows, device=x.device, dtype=x.dtype)
        split_kernel[(rows, triton.cdiv(columns, 64))](x, self.scratch, columns, BLOCK=64)
        join_kernel[(rows,)](self.scratch, y)
        return y
