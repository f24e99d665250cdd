"""Takes rows of incoming gradients for neighbours in memory, as behind torch.cat they are not."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "softmax"
EXPECT = "incorrect"
BACKWARD = True


@triton.jit
def _r(x, y, cols, stride, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + r * stride + at, at < cols, other=float("-inf"))
    e = tl.where(at < cols, tl.exp(v - tl.max(v)), 0.0)
    tl.store(y + r * cols + at, e / tl.sum(e), at < cols)


@triton.jit
def _b(y, g, d, cols, stride, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(y + r * cols + at, at < cols, other=0.0)
    u = tl.load(g + r * stride + at, at < cols, other=0.0)
    tl.store(d + r * cols + at, v * (u - tl.sum(u * v)), at < cols)


class _S(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            _r[(x.numel() // x.shape[-1],)](x, y, x.shape[-1], x.shape[-1], BLOCK=triton.next_power_of_2(x.shape[-1]))
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        if g.stride(-1) != 1:
            g = g.contiguous()
        d = torch.empty_like(y)
        if y.numel():
            _b[(y.numel() // y.shape[-1],)](y, g, d, y.shape[-1], y.shape[-1], BLOCK=triton.next_power_of_2(y.shape[-1]))
        return d


class ModelNew(nn.Module):
    def forward(self, x):
        return _S.apply(x)
