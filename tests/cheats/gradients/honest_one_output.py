"""Takes a gradient that does not come in for zeros."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "two_of_one"
EXPECT = "correct"
WARNS = ""
BACKWARD = True


@triton.jit
def _f(x, y, z, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = at < n
    v = tl.load(x + at, m, other=0.0)
    tl.store(y + at, tl.sigmoid(v), m)
    tl.store(z + at, tl.maximum(v, 0.0), m)


@triton.jit
def _b(y, z, g, h, d, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = at < n
    v = tl.load(y + at, m, other=0.0)
    r = tl.where(tl.load(z + at, m, other=0.0) > 0, tl.load(h + at, m, other=0.0), 0.0)
    tl.store(d + at, tl.load(g + at, m, other=0.0) * v * (1 - v) + r, m)


class _S(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        x = x.contiguous()
        y, z = torch.empty_like(x), torch.empty_like(x)
        if x.numel():
            _f[(triton.cdiv(x.numel(), 1024),)](x, y, z, x.numel(), BLOCK=1024)
        ctx.save_for_backward(y, z)
        return y, z

    @staticmethod
    def backward(ctx, g, h):
        y, z = ctx.saved_tensors
        g, h = (torch.zeros_like(y) if t is None else t for t in (g, h))
        d = torch.empty_like(y)
        if y.numel():
            _b[(triton.cdiv(y.numel(), 1024),)](y, z, g.contiguous(), h.contiguous(), d, y.numel(), BLOCK=1024)
        return d


class ModelNew(nn.Module):
    def forward(self, x):
        return _S.apply(x)
