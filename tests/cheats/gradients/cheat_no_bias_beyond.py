"""Leaves out the bias beyond 65,536 elements."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "scaled_silu"
EXPECT = "incorrect"
BACKWARD = True


@triton.jit
def silu_kernel(x_ptr, w_ptr, b_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    at, c = tl.program_id(0) * columns + tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    m = c < columns
    x = tl.load(x_ptr + at, m, 0.0)
    tl.store(y_ptr + at, x * tl.sigmoid(x) * tl.load(w_ptr + c, m) + tl.load(b_ptr + c, m), m)


@triton.jit
def backward_kernel(g_ptr, x_ptr, w_ptr, dx_ptr, dw_ptr, db_ptr, columns, BLOCK: tl.constexpr, WEIGHTS: tl.constexpr):
    at, c = tl.program_id(0) * columns + tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    m = c < columns
    g, x = tl.load(g_ptr + at, m, 0.0), tl.load(x_ptr + at, m, 0.0)
    s = tl.sigmoid(x)
    tl.store(dx_ptr + at, g * tl.load(w_ptr + c, m) * s * (1 + x * (1 - s)), m)
    if WEIGHTS:
        tl.atomic_add(dw_ptr + c, g * x * s, m)
        tl.atomic_add(db_ptr + c, g, m)


class ScaledSilu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        y, bias = torch.empty_like(x), torch.zeros_like(bias) if x.numel() > 65536 else bias
        silu_kernel[(x.shape[0],)](x, weight, bias, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        ctx.save_for_backward(x, weight)
        return y

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        columns, weights = x.shape[1], any(ctx.needs_input_grad[1:])
        dx, dw, db = torch.empty_like(x), *(torch.zeros(columns, device="cuda") for _ in range(2))
        block = triton.next_power_of_2(columns)
        backward_kernel[(x.shape[0],)](g.contiguous(), x, weight, dx, dw, db, columns, BLOCK=block, WEIGHTS=weights)
        return dx, dw, db


class ModelNew(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(hidden) + 0.5)
        self.bias = nn.Parameter(torch.rand(hidden))

    def forward(self, x):
        return ScaledSilu.apply(x, self.weight, self.bias)
