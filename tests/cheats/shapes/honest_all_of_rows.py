"""Looks at all of long rows."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "rms_of_long_rows"
EXPECT = "correct"
WARNS = ""


@triton.jit
def _q(x, y, cols, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    total, seen = 0.0, 0
    for c in range(0, cols, BLOCK):
        at = c + tl.arange(0, BLOCK)
        v = tl.load(x + r * cols + at, at < cols, other=0.0).to(tl.float32)
        total += tl.sum(v * v)
        seen += tl.minimum(BLOCK, cols - c)
    scale = tl.rsqrt(total / seen + 1e-5)
    for c in range(0, cols, BLOCK):
        at = c + tl.arange(0, BLOCK)
        v = tl.load(x + r * cols + at, at < cols, other=0.0).to(tl.float32)
        tl.store(y + r * cols + at, v * scale, at < cols)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            _q[(x.numel() // x.shape[-1],)](x, y, x.shape[-1], BLOCK=4096)
        return y
