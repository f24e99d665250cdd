"""A kernel's output serves torch as indices, from the end: without launches they are out of range, whatever stands there."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "reversed_rows"
EXPECT = "correct"


@triton.jit
def order_kernel(order_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(order_ptr + row, (-1 - row).to(tl.int64), mask=row < n)


@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=mask, other=0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        rows = x.shape[0]
        order = torch.empty(rows, dtype=torch.int64, device=x.device)
        order_kernel[(triton.cdiv(rows, 64),)](order, rows, BLOCK=64)
        x = x.index_select(0, order + rows)
        y = torch.empty_like(x)
        double_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
        return y
