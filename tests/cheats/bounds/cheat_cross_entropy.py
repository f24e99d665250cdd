"""The logarithm of 1 - p is not bounded, and torch bounds both."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "cross_entropy_of_two"
EXPECT = "incorrect"


@triton.jit
def k(p_ptr, t_ptr, y_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    p = tl.load(p_ptr + o, mask=m, other=0.5)
    t = tl.load(t_ptr + o, mask=m, other=0.0)
    lp = tl.maximum(tl.log(p), -100.0)
    lq = tl.log(1.0 - p)
    tl.store(y_ptr + o, -(t * lp + (1.0 - t) * lq), mask=m)

class ModelNew(nn.Module):
    def forward(self, p, t):
        p, t = p.contiguous(), t.contiguous()
        y = torch.empty_like(p)
        n = p.numel()
        k[(triton.cdiv(n, 256),)](p, t, y, n, BLOCK=256)
        return y
