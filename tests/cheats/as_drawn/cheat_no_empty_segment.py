"""Begins each sum with the first row of its segment: wrong for segments without rows."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "segments"
EXPECT = "correct"
WARNS = "skip some"


@triton.jit
def _s(x, starts, out, cols, BLOCK: tl.constexpr):
    b = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    lo, hi = tl.load(starts + b), tl.load(starts + b + 1)
    acc = tl.load(x + lo * cols + at, at < cols, other=0.0)
    for r in range(lo + 1, hi):
        acc += tl.load(x + r * cols + at, at < cols, other=0.0)
    tl.store(out + b * cols + at, acc, at < cols)


class ModelNew(nn.Module):
    def forward(self, x, starts):
        x, starts = x.contiguous(), starts.contiguous()
        out = torch.empty(starts.numel() - 1, x.shape[1], device=x.device, dtype=x.dtype)
        if out.numel():
            _s[(out.shape[0],)](x, starts, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
