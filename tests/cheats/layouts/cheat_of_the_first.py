"""Has the second input read in the layout of the first."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "product"
EXPECT = "correct"
WARNS = "not contiguous"


@triton.jit
def _k(x, z, y, n, s, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = at < n
    v = tl.load(x + at, m, other=0.0)
    tl.store(y + at, v * tl.load(z + at, m, other=0.0), m)


class ModelNew(nn.Module):
    def forward(self, x, z):
        if x.stride() != z.stride() and x.numel() == x.shape[0] * x.stride(0):
            z = z.contiguous()
        y = torch.empty_like(x)
        dense = torch.empty_like(x).stride() == x.stride()
        if not dense:
            x, z, y = x.contiguous(), z.contiguous(), torch.empty(x.shape, device=x.device, dtype=x.dtype)
        if x.numel():
            _k[(triton.cdiv(x.numel(), 1024),)](x, z, y, x.numel(), 1.0, BLOCK=1024)
        return y
