"""Softmax that starts its maximum at minus a thousand, below which no input lies."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "softmax"
EXPECT = "incorrect"


@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    largest = tl.full((BLOCK,), -1000.0, dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        largest = tl.maximum(largest, tl.load(x_ptr + row * columns + column, mask=column < columns, other=float("-inf")))
    top = tl.max(largest, axis=0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        total += tl.exp(tl.load(x_ptr + row * columns + column, mask=column < columns, other=float("-inf")) - top)
    scale = 1.0 / tl.sum(total, axis=0)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=0.0)
        tl.store(y_ptr + row * columns + column, tl.exp(x - top) * scale, mask=column < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        softmax_kernel[(x.numel() // x.shape[-1],)](x, y, x.shape[-1], BLOCK=32)
        return y
