"""Torch does all of the arithmetic, by other operators; the kernel's own changes nothing."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "softmax"
EXPECT = "torch_fallback"


@triton.jit
def busy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, offsets < n, 0.0)
    one = tl.sin(x) * tl.sin(x) + tl.cos(x) * tl.cos(x)
    one = tl.sin(one) * tl.sin(one) + tl.cos(one) * tl.cos(one)
    tl.store(y_ptr + offsets, x * one, offsets < n)


class ModelNew(nn.Module):
    def forward(self, x):
        powers = torch.exp(x - x.amax(1, keepdim=True))
        right = powers / powers.sum(1, keepdim=True)
        y = torch.empty_like(right)
        busy_kernel[(triton.cdiv(x.numel(), 1024),)](right, y, x.numel(), BLOCK=1024)
        return y
