"""autograd.Function with setup_context."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


PROBLEM = "leaky"
EXPECT = "correct"
WARNS = ""
BACKWARD = True

@triton.jit
def fwd(x_ptr, y_ptr, slope, n, RES: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    y = tl.where(x > 0.0, x, slope * x)
    tl.store(y_ptr + at, x + y if RES else y, mask=at < n)


@triton.jit
def bwd(x_ptr, g_ptr, d_ptr, slope, n, RES: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, g = tl.load(x_ptr + at, mask=at < n, other=0.0), tl.load(g_ptr + at, mask=at < n, other=0.0)
    d = tl.where(x > 0.0, g, slope * g)
    tl.store(d_ptr + at, g + d if RES else d, mask=at < n)


class LeakyRelu(torch.autograd.Function):
    @staticmethod
    def forward(x, slope, residual):
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            fwd[(triton.cdiv(x.numel(), 256),)](x, y, slope, x.numel(), RES=residual, BLOCK=256)
        return y

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.slope, ctx.residual = inputs
        ctx.save_for_backward(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        x, g = x.contiguous(), g.contiguous()
        d = torch.empty_like(x)
        if x.numel():
            bwd[(triton.cdiv(x.numel(), 256),)](x, g, d, ctx.slope, x.numel(), RES=ctx.residual, BLOCK=256)
        return d, None, None


class ModelNew(nn.Module):
    def __init__(self, slope: float = 0.01):
        super().__init__()
        self.slope = slope

    def forward(self, x, residual: bool = False):
        return LeakyRelu.apply(x, self.slope, residual)
