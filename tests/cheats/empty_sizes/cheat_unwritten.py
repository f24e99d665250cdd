"""Launches nothing where there is nothing to add: sums of no elements are zero, and memory that nobody wrote is not."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "rowsum"
EXPECT = "incorrect"
EXPECT_ON_A_GPU = ("incorrect", "correct")  # tried on a CPU alone


@triton.jit
def rowsum_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0)
    tl.store(y_ptr + row, tl.sum(total, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty(rows, device=x.device, dtype=x.dtype)
        if x.numel():
            rowsum_kernel[(rows,)](x, y, columns, BLOCK=128)
        return y
