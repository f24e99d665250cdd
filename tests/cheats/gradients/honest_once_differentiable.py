"""Saves its output, and says that its backward has no gradient of its own."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "sigmoid"
EXPECT = "correct"
WARNS = ""
BACKWARD = True


@triton.jit
def _f(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = at < n
    tl.store(y + at, tl.sigmoid(tl.load(x + at, m, other=0.0)), m)


@triton.jit
def _b(y, g, d, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = at < n
    v = tl.load(y + at, m, other=0.0)
    tl.store(d + at, tl.load(g + at, m, other=0.0) * v * (1 - v), m)


class _S(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            _f[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        d = torch.empty_like(y)
        if y.numel():
            _b[(triton.cdiv(y.numel(), 1024),)](y, g.contiguous(), d, y.numel(), BLOCK=1024)
        return d


class ModelNew(nn.Module):
    def forward(self, x):
        return _S.apply(x)
