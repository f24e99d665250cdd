"""Takes labels for contiguous: wrong for a column of a table."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "labels"
EXPECT = "correct"
WARNS = "not contiguous"


@triton.jit
def _ce(x, labels, out, cols, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + r * cols + at, at < cols, other=float("-inf"))
    top = tl.max(v)
    lse = top + tl.log(tl.sum(tl.where(at < cols, tl.exp(v - top), 0.0)))
    tl.store(out + r, lse - tl.load(x + r * cols + tl.load(labels + r)))


class ModelNew(nn.Module):
    def forward(self, x, labels):
        x = x.contiguous()
        out = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
        if x.numel():
            _ce[(x.shape[0],)](x, labels, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
