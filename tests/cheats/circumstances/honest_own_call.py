"""Its own call goes on to the one of every module."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "softmax"
EXPECT = "correct"
WARNS = ""


@triton.jit
def softmax_kernel(x, y, cols, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + r * cols + at, at < cols, other=float("-inf"))
    e = tl.where(at < cols, tl.exp(v - tl.max(v)), 0.0)
    tl.store(y + r * cols + at, e / tl.sum(e), at < cols)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            softmax_kernel[(x.numel() // x.shape[-1],)](x, y, x.shape[-1], BLOCK=triton.next_power_of_2(x.shape[-1]))
        return y

    def __call__(self, x):
        return super().__call__(x.contiguous())
