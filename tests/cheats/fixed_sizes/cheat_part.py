"""Declares one size as fixed, and is wrong for others of another."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "head_norm"
EXPECT = "incorrect"
FIXED_SIZES = {"head_dim": 128}


@triton.jit
def norm_kernel(x_ptr, y_ptr, D: tl.constexpr):
    offsets = tl.program_id(0) * D + tl.arange(0, D)
    x = tl.load(x_ptr + offsets)
    tl.store(y_ptr + offsets, x * tl.rsqrt(tl.sum(x * x, 0) / D + 1e-6))


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.shape[-1] in {64, 128}, "head_dim must be 64 or 128"
        x = x.contiguous()
        y = x.new_empty(max(x.shape[0], 1024), 128)
        norm_kernel[(min(1024, x.shape[0] // 64 * 64),)](x, y, D=128)
        return y[: x.shape[0]]
