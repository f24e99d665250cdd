"""Drops what it is told to."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "no_dropout"
EXPECT = "correct"
WARNS = ""


@triton.jit
def _k(x, y, n, s, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = at < n
    v = tl.load(x + at, m, other=0.0)
    tl.store(y + at, tl.maximum(v, 0.0), m)


def ew(x, s=1.0):
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        _k[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), s, BLOCK=1024)
    return y


class ModelNew(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        return torch.nn.functional.dropout(ew(x), self.p, self.training)
