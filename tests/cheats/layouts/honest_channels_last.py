"""Makes images contiguous whose channels are last."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "channel_affine"
EXPECT = "correct"
WARNS = ""


@triton.jit
def k(X, S, T, Y, C, HW, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    c = i // HW % C
    y = tl.load(X + i, mask=mask, other=0.0) * tl.load(S + c, mask=mask, other=0.0) + tl.load(T + c, mask=mask, other=0.0)
    tl.store(Y + i, tl.maximum(y, 0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(channels) + 0.5)
        self.shift = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        k[(triton.cdiv(x.numel(), 256),)](x, self.scale, self.shift, y, x.shape[1], x.shape[2] * x.shape[3], x.numel(), BLOCK=256)
        return y
