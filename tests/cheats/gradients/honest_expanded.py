"""Makes incoming gradients contiguous."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "rowsum"
EXPECT = "correct"
BACKWARD = True
WARNS = ""


@triton.jit
def sum_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + row, tl.sum(tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0), axis=0))


@triton.jit
def spread_kernel(g_ptr, dx_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    tl.store(dx_ptr + row * columns + at, tl.load(g_ptr + row) + tl.zeros((BLOCK,), tl.float32), mask=at < columns)


class RowSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        ctx.shape = x.shape
        y = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
        if x.shape[0]:
            sum_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(max(x.shape[1], 1)))
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        g = g.contiguous()
        dx = torch.empty(ctx.shape, device=g.device, dtype=g.dtype)
        if dx.numel():
            spread_kernel[(ctx.shape[0],)](g, dx, ctx.shape[1], BLOCK=triton.next_power_of_2(ctx.shape[1]))
        return dx


class ModelNew(nn.Module):
    def forward(self, x):
        return RowSum.apply(x)
