"""Takes NaN among the gradients that come in for zero."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "leaky"
EXPECT = "correct"
WARNS = "NaN or infinities"
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
    g = tl.where((g == g) & (tl.abs(g) < 1e30), g, 0.0)
    d = tl.where(x > 0.0, g, slope * g)
    tl.store(dx_ptr + at, g + d if RESIDUAL else d, mask=at < n)


class Leaky(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, model, residual):
        x = x.contiguous()
        y = torch.empty_like(x)
        leaky_kernel[(triton.cdiv(x.numel(), 256),)](x, y, model.slope, x.numel(), RESIDUAL=residual, BLOCK=256)
        ctx.model, ctx.residual = model, residual
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx, g):
        x, g, slope = ctx.saved_tensors[0], g.contiguous(), ctx.model.slope
        dx = torch.empty_like(x)
        backward_kernel[(triton.cdiv(x.numel(), 256),)](x, g, dx, slope, x.numel(), RESIDUAL=ctx.residual, BLOCK=256)
        return dx, None, None


class ModelNew(nn.Module):
    def __init__(self, slope: float = 0.01):
        super().__init__()
        self.slope = slope

    def forward(self, x, residual: bool = False):
        return Leaky.apply(x, self, residual)
