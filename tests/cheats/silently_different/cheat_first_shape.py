"""The length of rows is taken from the first call, and kept for all others."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "softmax"
EXPECT = "incorrect"


@triton.jit
def _r(x, y, cols, stride, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + r * stride + at, at < cols, other=float("-inf"))
    e = tl.where(at < cols, tl.exp(v - tl.max(v)), 0.0)
    tl.store(y + r * cols + at, e / tl.sum(e), at < cols)

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.cols = None
    def forward(self, x):
        if self.cols is None:
            self.cols = x.shape[-1]
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            _r[(x.numel() // self.cols,)](x, y, self.cols, self.cols, BLOCK=triton.next_power_of_2(self.cols))
        return y
