"""Rounds the gradient that comes in to half precision."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "scale"
EXPECT = "correct"
BACKWARD = True
WARNS = "less exact than float32"


@triton.jit
def scale_kernel(x_ptr, w_ptr, b_ptr, y_ptr, n, columns, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    w = tl.load(w_ptr + offsets % columns, mask=mask, other=0.0)
    b = tl.load(b_ptr + offsets % columns, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, x * w + b, mask=mask)

def scale(x, w, b):
    x, w, b = x.contiguous(), w.contiguous(), b.contiguous()
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 512),)](x, w, b, y, x.numel(), x.shape[-1], BLOCK=512)
    return y

class Fn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        return scale(x, w, b)
    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        dx, dw, db = grads(g.bfloat16().float(), x, w)
        return dx, dw, db

@triton.jit
def mul_kernel(x_ptr, y_ptr, o_ptr, n, columns, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.store(o_ptr + i, tl.load(x_ptr + i, mask=m, other=0.0) * tl.load(y_ptr + i % columns, mask=m, other=0.0), mask=m)

@triton.jit
def wgrad_kernel(g_ptr, x_ptr, dw_ptr, db_ptr, rows, columns, BLOCK: tl.constexpr):
    c = tl.program_id(0)
    aw = tl.zeros((BLOCK,), tl.float32)
    ab = tl.zeros((BLOCK,), tl.float32)
    for s in range(0, rows, BLOCK):
        r = s + tl.arange(0, BLOCK)
        g = tl.load(g_ptr + r * columns + c, mask=r < rows, other=0.0)
        aw += g * tl.load(x_ptr + r * columns + c, mask=r < rows, other=0.0)
        ab += g
    tl.store(dw_ptr + c, tl.sum(aw))
    tl.store(db_ptr + c, tl.sum(ab))

def grads(g, x, w):
    g, x = g.contiguous(), x.contiguous()
    dx, dw, db = torch.empty_like(x), torch.empty_like(w), torch.empty_like(w)
    columns = x.shape[-1]
    mul_kernel[(triton.cdiv(x.numel(), 256),)](g, w, dx, x.numel(), columns, BLOCK=256)
    wgrad_kernel[(columns,)](g, x, dw, db, x.numel() // columns, columns, BLOCK=64)
    return dx, dw, db

class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return Fn.apply(x, self.weight, self.bias)
