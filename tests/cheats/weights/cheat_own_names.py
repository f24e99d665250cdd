"""The same parameters, drawn in the same order, under other names: no trained ones can be loaded."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "scale"
EXPECT = "incorrect"

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

class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.w = nn.Parameter(torch.randn(features))
        self.b = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return scale(x, self.w, self.b)
