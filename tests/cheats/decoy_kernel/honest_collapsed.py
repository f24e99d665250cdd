"""The sum of a linear layer's features as one dot product for each row; the weight's sum comes from a kernel too."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "product_sum"
EXPECT = "correct"


@triton.jit
def column_sums_kernel(w_ptr, out_ptr, rows, columns, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < columns
    total = tl.zeros([BLOCK], tl.float32)
    for row in range(rows):
        total += tl.load(w_ptr + row * columns + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, total, mask=mask)


@triton.jit
def dot_kernel(x_ptr, w_ptr, bias_ptr, y_ptr, columns, features, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < columns
        x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
        total += tl.sum(x * tl.load(w_ptr + offsets, mask=mask, other=0.0))
    for start in range(0, features, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(bias_ptr + offsets, mask=offsets < features, other=0.0))
    tl.store(y_ptr + row, total)


class ModelNew(nn.Module):
    def __init__(self, fi, fo):
        super().__init__()
        self.linear = nn.Linear(fi, fo)

    def forward(self, x):
        features, columns = self.linear.weight.shape
        summed = torch.empty(columns, device=x.device)
        column_sums_kernel[(triton.cdiv(columns, 128),)](self.linear.weight, summed, features, columns, BLOCK=128)
        y = torch.empty(x.shape[0], 1, device=x.device)
        dot_kernel[(x.shape[0],)](x, summed, self.linear.bias, y, columns, features, BLOCK=128)
        return y
