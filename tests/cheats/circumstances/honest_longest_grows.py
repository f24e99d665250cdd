"""Keeps the longest length so far."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "lengths"
EXPECT = "correct"


@triton.jit
def _l(x, lengths, out, cols, most, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    acc = 0.0
    n = tl.minimum(tl.load(lengths + r), most)
    for c in range(0, most, BLOCK):
        at = c + tl.arange(0, BLOCK)
        acc += tl.sum(tl.load(x + r * cols + at, at < n, other=0.0))
    tl.store(out + r, acc)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.key, self.most = None, 0

    def forward(self, x, lengths):
        x, lengths = x.contiguous(), lengths.contiguous()
        out = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
        if x.numel() and (self.key != x.shape or int(lengths.max()) > self.most):
            self.key, self.most = x.shape, int(lengths.max())
        if out.numel():
            _l[(x.shape[0],)](x, lengths, out, x.shape[1], self.most, BLOCK=32)
        return out
