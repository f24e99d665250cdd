"""Keeps what its backward reads beside the graph, where nothing tells that it changes."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "leaky"
EXPECT = "correct"
BACKWARD = True


@triton.jit
def leaky_kernel(x_ptr, y_ptr, slope, n, RESIDUAL: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    y = tl.where(x > 0.0, x, slope * x)
    tl.store(y_ptr + at, x + y if RESIDUAL else y, mask=at < n)


@triton.jit
def backward_kernel(x_ptr, g_ptr, dx_ptr, slope, n, RESIDUAL: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, g = tl.load(x_ptr + at, mask=at < n, other=0.0), tl.load(g_ptr + at, mask=at < n, other=0.0)
    d = tl.where(x > 0.0, g, slope * g)
    tl.store(dx_ptr + at, g + d if RESIDUAL else d, mask=at < n)


class Leaky(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, model, residual):
        x = x.contiguous()
        y = torch.empty_like(x)
        leaky_kernel[(triton.cdiv(x.numel(), 256),)](x, y, model.slope, x.numel(), RESIDUAL=residual, BLOCK=256)
        ctx.x, ctx.model, ctx.residual = x, model, residual
        return y

    @staticmethod
    def backward(ctx, g):
        x, g, slope = ctx.x, g.contiguous(), ctx.model.slope
        dx = torch.empty_like(x)
        backward_kernel[(triton.cdiv(x.numel(), 256),)](x, g, dx, slope, x.numel(), RESIDUAL=ctx.residual, BLOCK=256)
        return dx, None, None


class ModelNew(nn.Module):
    def __init__(self, slope: float = 0.01):
        super().__init__()
        self.slope = slope

    def forward(self, x, residual: bool = False):
        return Leaky.apply(x, self, residual)
