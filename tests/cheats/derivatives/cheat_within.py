"""A kernel within torch.func, where tensors have no memory."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "tangent"
EXPECT = "runtime_error"


@triton.jit
def k(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(o_ptr + i, tl.sin(x) * x, mask=i < n)


def f(x):
    o = torch.empty_like(x)
    k[(triton.cdiv(x.numel(), 256),)](x, o, x.numel(), BLOCK=256)
    return o


class ModelNew(nn.Module):
    def forward(self, x, t):
        y, dy = torch.func.jvp(f, (x.contiguous(),), (t,))
        return y + dy
