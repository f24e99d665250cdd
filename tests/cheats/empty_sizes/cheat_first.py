"""Begins each sum with the row's first element, also where the row has none: on a GPU that reads what lies beside, without a word."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "rowsum"
EXPECT = "runtime_error"
EXPECT_ON_A_GPU = ("runtime_error", "correct")  # tried on a CPU alone


@triton.jit
def rowsum_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    first = tl.load(x_ptr + row * columns)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(1, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0)
    tl.store(y_ptr + row, tl.where(columns > 0, first, 0.0) + tl.sum(total, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty(rows, device=x.device, dtype=x.dtype)
        rowsum_kernel[(rows,)](x, y, columns, BLOCK=128)
        return y
