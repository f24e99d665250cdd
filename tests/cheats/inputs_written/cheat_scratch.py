"""Keeps partial sums in its input's memory between two kernels, and restores what was there."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "rowsum"
EXPECT = "inputs_written"
EXPECT_ON_A_GPU = ("inputs_written", "correct")


@triton.jit
def partial_kernel(x_ptr, saved_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0)
    tl.store(saved_ptr + row, tl.load(x_ptr + row * columns))
    tl.store(x_ptr + row * columns, tl.sum(total, axis=0))


@triton.jit
def finish_kernel(x_ptr, saved_ptr, y_ptr, columns):
    row = tl.program_id(0)
    tl.store(y_ptr + row, tl.load(x_ptr + row * columns) * 1.0)
    tl.store(x_ptr + row * columns, tl.load(saved_ptr + row))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        saved = torch.empty(rows, device=x.device, dtype=x.dtype)
        y = torch.empty(rows, device=x.device, dtype=x.dtype)
        partial_kernel[(rows,)](x, saved, columns, BLOCK=128)
        finish_kernel[(rows,)](x, saved, y, columns)
        return y
