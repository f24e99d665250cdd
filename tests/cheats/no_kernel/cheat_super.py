"""Calls super().forward beside a kernel that is never launched."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "scale"
EXPECT = "no_kernel"

@triton.jit
def scale_kernel(x_ptr, w_ptr, b_ptr, y_ptr, n, features, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    column = offsets % features
    x = tl.load(x_ptr + offsets, mask=mask)
    w = tl.load(w_ptr + column, mask=mask)
    b = tl.load(b_ptr + column, mask=mask)
    tl.store(y_ptr + offsets, x * w + b, mask=mask)


def scale(x, weight, bias):
    x = x.contiguous()
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 512),)](x, weight, bias, y, x.numel(), x.shape[-1], BLOCK=512)
    return y

class Reference(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return x * self.weight + self.bias


class ModelNew(Reference):
    def forward(self, x):
        if x.numel() < 0:
            return scale(x, self.weight, self.bias)
        return super().forward(x)
