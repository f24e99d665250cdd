"""Saves its input as it lay before it was made contiguous."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "cubed"
EXPECT = "correct"
WARNS = "or a gradient"
BACKWARD = True


@triton.jit
def _f(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = at < n
    v = tl.load(x + at, m, other=0.0)
    tl.store(y + at, v * v * v, m)


@triton.jit
def _b(x, g, d, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = at < n
    v = tl.load(x + at, m, other=0.0)
    tl.store(d + at, 3.0 * v * v * tl.load(g + at, m, other=0.0), m)


class _S(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            _f[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        d = torch.empty(x.shape, device=x.device, dtype=x.dtype)
        if x.numel():
            _b[(triton.cdiv(x.numel(), 1024),)](x, g.contiguous(), d, x.numel(), BLOCK=1024)
        return d


class ModelNew(nn.Module):
    def forward(self, x):
        return _S.apply(x)
