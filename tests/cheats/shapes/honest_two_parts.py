"""Two launches write a half each; the second output is written in part, over zeros."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu_large"
EXPECT = "correct"


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets, mask=mask), 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        half = n // 2
        flat_x, flat_y = x.view(-1), y.view(-1)
        relu_kernel[(triton.cdiv(half, 1024),)](flat_x, flat_y, half, BLOCK=1024)
        relu_kernel[(triton.cdiv(n - half, 1024),)](flat_x[half:], flat_y[half:], n - half, BLOCK=1024)
        return y
