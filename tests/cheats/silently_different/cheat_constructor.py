"""Takes the constructor's argument and ignores it."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "leaky"
EXPECT = "incorrect"


@triton.jit
def leaky_kernel(x_ptr, y_ptr, slope, n, RESIDUAL: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.where(x > 0.0, x, slope * x)
    tl.store(y_ptr + offsets, x + y if RESIDUAL else y, mask=mask)


def leaky(x, slope, residual=False):
    x = x.contiguous()
    y = torch.empty_like(x)
    leaky_kernel[(triton.cdiv(x.numel(), 256),)](x, y, slope, x.numel(), RESIDUAL=residual, BLOCK=256)
    return y


class ModelNew(nn.Module):
    def __init__(self, slope: float = 0.01):
        super().__init__()

    def forward(self, x, residual: bool = False):
        return leaky(x, 0.01, residual)
