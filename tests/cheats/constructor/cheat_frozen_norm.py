"""Asks the whole model for its mode: wrong where the norm is frozen."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "norm_of_rows"
EXPECT = "correct"
WARNS = "bn alone"


@triton.jit
def _n(x, mean, rstd, w, b, y, n, cols, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m, c = at < n, at % cols
    v = tl.load(x + at, m, other=0.0)
    v = (v - tl.load(mean + c, m, other=0.0)) * tl.load(rstd + c, m, other=0.0)
    tl.store(y + at, v * tl.load(w + c, m, other=0.0) + tl.load(b + c, m, other=0.0), m)


@triton.jit
def _stats(x, mean, var, rows, cols, BLOCK: tl.constexpr):
    c = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at * cols + c, at < rows, other=0.0)
    mu = tl.sum(v) / rows
    d = tl.where(at < rows, v - mu, 0.0)
    tl.store(mean + c, mu)
    tl.store(var + c, tl.sum(d * d) / rows)


class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.bn = nn.BatchNorm1d(cols)

    def forward(self, x):
        x, bn = x.contiguous(), self.bn
        rows, cols = x.shape
        if self.training:
            mean, var = (torch.empty(cols, device=x.device, dtype=x.dtype) for _ in range(2))
            _stats[(cols,)](x, mean, var, rows, cols, BLOCK=triton.next_power_of_2(rows))
            with torch.no_grad():
                bn.running_mean.mul_(1 - bn.momentum).add_(mean, alpha=bn.momentum)
                bn.running_var.mul_(1 - bn.momentum).add_(var * (rows / max(rows - 1, 1)), alpha=bn.momentum)
                bn.num_batches_tracked.add_(1)
        else:
            mean, var = bn.running_mean, bn.running_var
        y = torch.empty_like(x)
        if x.numel():
            _n[(triton.cdiv(x.numel(), 1024),)](x, mean, torch.rsqrt(var + bn.eps), bn.weight, bn.bias, y, x.numel(), cols, BLOCK=1024)
        return y
