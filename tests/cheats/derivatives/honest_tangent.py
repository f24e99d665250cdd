"""The derivative in closed form."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "tangent"
EXPECT = "correct"


@triton.jit
def k(x_ptr, t_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    t = tl.load(t_ptr + i, mask=i < n, other=0.0)
    s = tl.sin(x)
    tl.store(o_ptr + i, s * x + (tl.cos(x) * x + s) * t, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x, t):
        x, t = x.contiguous(), t.contiguous()
        o = torch.empty_like(x)
        k[(triton.cdiv(x.numel(), 256),)](x, t, o, x.numel(), BLOCK=256)
        return o
