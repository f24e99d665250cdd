"""Programs add to one element without atomics; the histogram keeps them from running side by side in the interpreter."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "rowsum"
EXPECT = ("runtime_error", "incorrect")
EXPECT_ON_A_GPU = ("incorrect", "correct")


@triton.jit
def sum_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0)
    ones = tl.sum(tl.histogram(tl.zeros((BLOCK,), tl.int32), 16), axis=0) // BLOCK
    tl.store(y_ptr + row, tl.load(y_ptr + row) + tl.sum(x, axis=0) * ones)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.zeros(rows, device=x.device)
        sum_kernel[(rows, triton.cdiv(columns, 16))](x, y, columns, BLOCK=16)
        return y
