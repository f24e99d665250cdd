"""Within torch.func.jvp: kernels of their own compute the function and its derivative."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "tangent"
EXPECT = "correct"


@triton.jit
def k(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(o_ptr + i, tl.sin(x) * x, mask=i < n)


@triton.jit
def tangent_kernel(x_ptr, t_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    t = tl.load(t_ptr + i, mask=i < n, other=0.0)
    tl.store(o_ptr + i, (tl.cos(x) * x + tl.sin(x)) * t, mask=i < n)


class Tangent(torch.autograd.Function):
    @staticmethod
    def forward(x, t):
        o = torch.empty_like(x)
        tangent_kernel[(triton.cdiv(x.numel(), 256),)](x, t.contiguous(), o, x.numel(), BLOCK=256)
        return o

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass


class F(torch.autograd.Function):
    @staticmethod
    def forward(x):
        o = torch.empty_like(x)
        k[(triton.cdiv(x.numel(), 256),)](x, o, x.numel(), BLOCK=256)
        return o

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_forward(inputs[0])

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return Tangent.apply(x, t)


class ModelNew(nn.Module):
    def forward(self, x, t):
        y, dy = torch.func.jvp(F.apply, (x.contiguous(),), (t,))
        return y + dy
