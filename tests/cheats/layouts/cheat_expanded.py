"""Takes the step from row to row for no less than a row."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "softmax"
EXPECT = "correct"
WARNS = "rows are one in memory"


@triton.jit
def _r(x, y, cols, stride, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + r * stride + at, at < cols, other=float("-inf"))
    e = tl.where(at < cols, tl.exp(v - tl.max(v)), 0.0)
    tl.store(y + r * cols + at, e / tl.sum(e), at < cols)


class ModelNew(nn.Module):
    def forward(self, x):
        if x.dim() != 2:
            raise ValueError("matrices only")
        if x.stride(-1) != 1:
            x = x.contiguous()
        y = torch.empty(x.shape, device=x.device, dtype=x.dtype)
        if x.numel():
            _r[(x.shape[0],)](x, y, x.shape[1], max(x.stride(0), x.shape[1]), BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
