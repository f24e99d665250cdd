"""Writes a number of each call into a constant of the file, which a compiled kernel has from its first launch."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "runtime_error"


SCALE = tl.constexpr(1.0)


@triton.jit
def scale_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(y_ptr + i, tl.maximum(x * SCALE, 0.0) / SCALE, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        global SCALE
        SCALE = tl.constexpr(1.0 + abs(float(x.flatten()[0])))
        y = torch.empty_like(x)
        scale_kernel[(triton.cdiv(x.numel(), 256),)](x.contiguous(), y, x.numel(), BLOCK=256)
        return y
