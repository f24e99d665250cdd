"""A table of grids for the latest shapes."""

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


def relu(x, slope=0.0):
    x = x.contiguous()
    y = torch.empty_like(x)
    relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), slope, BLOCK=1024)
    return y


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.grids = {}

    def forward(self, x):
        if x.shape not in self.grids:
            if len(self.grids) >= 8:
                self.grids.pop(next(iter(self.grids)))
            self.grids[x.shape] = (triton.cdiv(x.numel(), 1024),)
        x, y = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
        if x.numel():
            relu_kernel[self.grids[x.shape]](x, y, x.numel(), 0.0, BLOCK=1024)
        return y
