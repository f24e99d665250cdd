"""Shapes and strides as tuples, helpers with custom combines."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


PROBLEM = "cumsum"
EXPECT = "correct"
WARNS = ""

@triton.jit
def add(a, b):
    return a + b


@triton.jit
def scan(x_ptr, y_ptr, shape, strides, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.program_id(1)
    carry = 0.0
    for start in range(0, shape[1], BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * strides[0] + at * strides[1] + column * strides[2], mask=at < shape[1], other=0.0)
        y = tl.associative_scan(x, 0, add) + carry
        carry += tl.reduce(x, 0, add)
        tl.store(y_ptr + (row * shape[1] + at) * shape[2] + column, y, mask=at < shape[1])


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape, device=x.device, dtype=x.dtype)
        if y.numel():
            scan[(x.shape[0], x.shape[2])](x, y, tuple(x.shape), tuple(x.stride()), BLOCK=64)
        return y
