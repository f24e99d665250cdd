"""Joins two masks by `and`, of which only the first half of a block stays: in Python `and` gives its last operand."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "incorrect"


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = (tl.arange(0, BLOCK) < BLOCK // 2) and (i < n)
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    tl.store(y_ptr + i, tl.maximum(x, 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 256),)](x.contiguous(), y, x.numel(), BLOCK=256)
        return y
