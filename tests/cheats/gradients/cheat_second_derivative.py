"""Multiplies by torch in its backward, so that torch finds a part of the second derivative."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "gated_tangent"
EXPECT = "correct"
WARNS = "Gradients of gradients"
BACKWARD = True


@triton.jit
def _f(x, y, d, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = at < n
    v = tl.load(x + at, m, other=0.0)
    s = tl.sigmoid(v)
    t = 2.0 * tl.sigmoid(2.0 * v) - 1.0
    tl.store(y + at, s * t, m)
    tl.store(d + at, s * (1.0 - s) * t + s * (1.0 - t * t), m)


def both(x):
    x = x.contiguous()
    y, d = torch.empty_like(x), torch.empty_like(x)
    if x.numel():
        _f[(triton.cdiv(x.numel(), 1024),)](x, y, d, x.numel(), BLOCK=1024)
    return y, d


class _S(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return both(x)[0]

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * both(x)[1]


class ModelNew(nn.Module):
    def forward(self, x):
        return _S.apply(x)
