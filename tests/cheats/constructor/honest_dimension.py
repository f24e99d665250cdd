"""Refuses other dimensions than the last one."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "softmax_along"
EXPECT = "correct"
WARNS = ""


@triton.jit
def _r(x, y, cols, stride, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + r * stride + at, at < cols, other=float("-inf"))
    e = tl.where(at < cols, tl.exp(v - tl.max(v)), 0.0)
    tl.store(y + r * cols + at, e / tl.sum(e), at < cols)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        if self.dim not in (1, -1) or x.dim() != 2:
            raise NotImplementedError("rows of matrices alone")
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            _r[(x.numel() // x.shape[-1],)](x, y, x.shape[-1], x.shape[-1], BLOCK=triton.next_power_of_2(x.shape[-1]))
        return y
