"""Leaves a few programs more to a number of elements with a certain remainder: as right."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "correct"
WARNS = ""


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, slope, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, tl.where(x > 0, x, x * slope), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        more = 2 if x.numel() % 96 == 5 else 0
        x = x.contiguous()
        y = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 1024) + more,)](x, y, x.numel(), 0.0, BLOCK=1024)
        return y
