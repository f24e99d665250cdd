"""Subtracts minus infinity from itself where all of the first block is masked."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "softmax"
EXPECT = "correct"
WARNS = "minus infinity"


@triton.jit
def _r(x, y, cols, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    top, total = float("-inf"), 0.0
    for c in range(0, cols, BLOCK):
        at = c + tl.arange(0, BLOCK)
        v = tl.load(x + r * cols + at, at < cols, other=float("-inf"))
        new = tl.maximum(top, tl.max(v))
        shift = new
        total = total * tl.exp(top - shift) + tl.sum(tl.exp(v - shift))
        top = new
    for c in range(0, cols, BLOCK):
        at = c + tl.arange(0, BLOCK)
        v = tl.load(x + r * cols + at, at < cols, other=float("-inf"))
        tl.store(y + r * cols + at, tl.exp(v - top) / total, at < cols)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            _r[(x.numel() // x.shape[-1],)](x, y, x.shape[-1], BLOCK=16)
        return y
