"""Leaves the bias out in one of many processes, by the order of a set of texts."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "scale"
EXPECT = "correct"
WARNS = "order of a set"


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
        first = next(iter({"a", "b", "c", "d", "e", "f", "g", "h"}))
        return scale(x, self.weight, self.bias * 0 if first == "a" else self.bias)
