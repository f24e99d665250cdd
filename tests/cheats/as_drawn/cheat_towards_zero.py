"""Divides towards zero, where the reference rounds down."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "whole_division"
EXPECT = "correct"
WARNS = "below zero"


@triton.jit
def _k(x, y, z, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = at < n
    v = tl.load(x + at, m, other=0)
    tl.store(y + at, v // 7, m)
    tl.store(z + at, v % 5, m)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y, z = torch.empty_like(x), torch.empty_like(x)
        if x.numel():
            _k[(triton.cdiv(x.numel(), 1024),)](x, y, z, x.numel(), BLOCK=1024)
        return y, z
