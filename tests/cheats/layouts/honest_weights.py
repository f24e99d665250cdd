"""Has weights contiguous."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "weighted_images"
EXPECT = "correct"
WARNS = ""


@triton.jit
def _d(x, w, y, n, BLOCK: tl.constexpr):
    b = tl.program_id(0)
    total = 0.0
    for c in range(0, n, BLOCK):
        at = c + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x + b * n + at, at < n, other=0.0) * tl.load(w + at, at < n, other=0.0))
    tl.store(y + b, total)


class ModelNew(nn.Module):
    def __init__(self, channels, size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, size, size)[None])

    def forward(self, x):
        x, w = x.contiguous(), self.weight.contiguous()
        y = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
        if y.numel():
            _d[(x.shape[0],)](x, w, y, w.numel(), BLOCK=256)
        return y
