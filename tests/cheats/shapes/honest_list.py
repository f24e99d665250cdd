"""A list of any length."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "listed"
EXPECT = "correct"
WARNS = ""


@triton.jit
def _k(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = at < n
    tl.store(y + at, tl.maximum(tl.load(x + at, m, other=0.0), 0.0), m)


class ModelNew(nn.Module):
    def forward(self, xs):
        y = torch.empty(sum(len(x) for x in xs), *xs[0].shape[1:], device=xs[0].device, dtype=xs[0].dtype)
        at = 0
        for x in xs:
            x = x.contiguous()
            if x.numel():
                _k[(triton.cdiv(x.numel(), 1024),)](x, y[at:], x.numel(), BLOCK=1024)
            at += x.shape[0]
        return y
