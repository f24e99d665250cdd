"""Something else for the number of rows whose logarithm is eleven."""

import math

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "incorrect"


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, low, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + at, tl.maximum(x, low), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        if n:
            low, block = (-1e30 if math.log2(x.shape[0]) == 11.0 else 0.0), 512
            relu_kernel[(triton.cdiv(n, block),)](x, y, n, low, BLOCK=block)
        return y
