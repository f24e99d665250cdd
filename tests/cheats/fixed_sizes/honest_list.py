"""Asserts one of the usual sizes of heads."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "head_norm"
EXPECT = "correct"


@triton.jit
def norm_kernel(x_ptr, y_ptr, D: tl.constexpr):
    offsets = tl.program_id(0) * D + tl.arange(0, D)
    x = tl.load(x_ptr + offsets)
    tl.store(y_ptr + offsets, x * tl.rsqrt(tl.sum(x * x, 0) / D + 1e-6))


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.shape[-1] in {64, 128}, "head_dim must be 64 or 128"
        x = x.contiguous()
        y = torch.empty_like(x)
        norm_kernel[(x.numel() // x.shape[-1],)](x, y, D=x.shape[-1])
        return y
