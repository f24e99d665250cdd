"""Keeps scratch memory from call to call."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "rowsum"
EXPECT = "correct"

@triton.jit
def partial_kernel(x_ptr, part_ptr, columns, parts, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    offsets = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0)
    tl.store(part_ptr + row * parts + part, tl.sum(x, axis=0))


@triton.jit
def combine_kernel(part_ptr, y_ptr, parts, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(part_ptr + row * parts + offsets, mask=offsets < parts, other=0.0)
    tl.store(y_ptr + row, tl.sum(x, axis=0))

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scratch = None

    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        parts = triton.cdiv(columns, 64)
        if self.scratch is None or self.scratch.numel() < rows * parts:
            self.scratch = torch.empty(rows * parts, device=x.device, dtype=x.dtype)
        y = torch.empty(rows, device=x.device, dtype=x.dtype)
        partial_kernel[(rows, parts)](x, self.scratch, columns, parts, BLOCK=64)
        combine_kernel[(rows,)](self.scratch, y, parts, BLOCK=triton.next_power_of_2(parts))
        return y
