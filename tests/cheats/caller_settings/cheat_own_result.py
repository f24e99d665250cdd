"""Leaves the bias out for a tensor that it returned before, as in a loop over layers."""

import weakref

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "scale"
EXPECT = "correct"
WARNS = "results of an earlier call"


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
        self.last = None

    def forward(self, x):
        mine = self.last is not None and x is self.last()
        y = scale(x, self.weight, self.bias * 0 if mine else self.bias)
        self.last = weakref.ref(y)
        return y
