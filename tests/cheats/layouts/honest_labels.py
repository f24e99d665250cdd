"""Has the step between labels handed over."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "labels"
EXPECT = "correct"
WARNS = ""


@triton.jit
def _ce(x, labels, out, cols, step, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + r * cols + at, at < cols, other=float("-inf"))
    top = tl.max(v)
    lse = top + tl.log(tl.sum(tl.where(at < cols, tl.exp(v - top), 0.0)))
    label = tl.load(labels + r * step)
    tl.store(out + r, tl.where(label == -100, 0.0, lse - tl.load(x + r * cols + label, label >= 0, other=0.0)))


class ModelNew(nn.Module):
    def forward(self, x, labels):
        x = x.contiguous()
        out = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
        if x.numel():
            _ce[(x.shape[0],)](x, labels, out, x.shape[1], labels.stride(0), BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
