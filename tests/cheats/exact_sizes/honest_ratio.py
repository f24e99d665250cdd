"""Other blocks for long and narrow inputs."""

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
    y = tl.where(x < 0, x * slope, x)
    tl.store(y_ptr + offsets, y, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        x, y = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
        block = 256 if rows > 7 * columns or (rows * columns) % 96 == 5 else 1024
        if x.numel():
            relu_kernel[(triton.cdiv(x.numel(), block),)](x, y, x.numel(), 0.0, BLOCK=block)
        return y
