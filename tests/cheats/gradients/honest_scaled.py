"""Right for losses of any size, and for gradients that are there."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu_of_scaled"
EXPECT = "correct"
WARNS = ""
BACKWARD = True


@triton.jit
def forward_kernel(x_ptr, w_ptr, y_ptr, n, width, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    w = tl.load(w_ptr + at % width, mask=at < n, other=0.0)
    tl.store(y_ptr + at, tl.maximum(x * w, 0.0), mask=at < n)


@triton.jit
def backward_kernel(g_ptr, x_ptr, w_ptr, dx_ptr, dw_ptr, rows, width, BLOCK: tl.constexpr):
    column = tl.program_id(0)
    row = tl.arange(0, BLOCK)
    at = row * width + column
    g = tl.load(g_ptr + at, mask=row < rows, other=0.0)
    x = tl.load(x_ptr + at, mask=row < rows, other=0.0)
    w = tl.load(w_ptr + column)
    g = tl.where(x * w > 0, g, 0.0)
    tl.store(dx_ptr + at, g * w, mask=row < rows)
    tl.store(dw_ptr + column, tl.sum(g * x))


class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        x = x.contiguous()
        y = torch.empty_like(x)
        forward_kernel[(triton.cdiv(x.numel(), 256),)](x, w, y, x.numel(), w.shape[0], BLOCK=256)
        ctx.save_for_backward(x, w)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        g = g.contiguous()
        dx, dw = torch.empty_like(x), torch.empty_like(w)
        rows = x.numel() // w.shape[0]
        backward_kernel[(w.shape[0],)](g, x, w, dx, dw, rows, w.shape[0], BLOCK=triton.next_power_of_2(max(rows, 1)))
        return dx, dw


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(40))

    def forward(self, x):
        return F.apply(x, self.weight)
