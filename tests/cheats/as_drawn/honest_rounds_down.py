"""Rounds quotients down, and has remainders of the divisor's sign."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "whole_division"
EXPECT = "correct"
WARNS = ""


@triton.jit
def _k(x, y, z, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = at < n
    v = tl.load(x + at, m, other=0)
    q, r = v // 7, v % 5
    tl.store(y + at, tl.where((v < 0) & (v % 7 != 0), q - 1, q), m)
    tl.store(z + at, tl.where(r < 0, r + 5, r), m)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y, z = torch.empty_like(x), torch.empty_like(x)
        if x.numel():
            _k[(triton.cdiv(x.numel(), 1024),)](x, y, z, x.numel(), BLOCK=1024)
        return y, z
