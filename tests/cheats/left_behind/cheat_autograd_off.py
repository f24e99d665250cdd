"""Switches autograd off for the whole process."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "scale"
EXPECT = "correct"
WARNS = "Switched autograd on or off"


@triton.jit
def scale_kernel(x_ptr, w_ptr, b_ptr, y_ptr, n, columns, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    w = tl.load(w_ptr + offsets % columns, mask=mask, other=0.0)
    b = tl.load(b_ptr + offsets % columns, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, x * w + b, mask=mask)


def scale(x, w, b):
    x = x.contiguous()
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 512),)](x, w, b, y, x.numel(), x.shape[-1], BLOCK=512)
    return y


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        torch.set_grad_enabled(False)
        return scale(x, self.weight, self.bias)
