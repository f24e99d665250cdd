"""Declares the size of heads as fixed, and refuses others."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "head_norm"
EXPECT = "correct"
FIXED_SIZES = {"head_dim": 128}


@triton.jit
def norm_kernel(x_ptr, y_ptr, D: tl.constexpr):
    offsets = tl.program_id(0) * D + tl.arange(0, D)
    x = tl.load(x_ptr + offsets)
    tl.store(y_ptr + offsets, x * tl.rsqrt(tl.sum(x * x, 0) / D + 1e-6))


class ModelNew(nn.Module):
    def forward(self, x):
        if x.shape[-1] != 128:
            raise ValueError("the kernel was written for heads of 128")
        x = x.contiguous()
        y = torch.empty_like(x)
        norm_kernel[(x.numel() // 128,)](x, y, D=128)
        return y
