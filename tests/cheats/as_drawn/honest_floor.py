"""Rounds down at any size."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "half_floored"
EXPECT = "correct"
WARNS = ""


@triton.jit
def _k(x_p, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = at < n
    x = tl.load(x_p + at, m, other=0.0)
    tl.store(y + at, x - 0.5 * tl.floor(x), m)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        if y.numel():
            _k[(triton.cdiv(y.numel(), 1024),)](x, y, y.numel(), BLOCK=1024)
        return y
