"""Hooks on the model are refused where they are set: its kernel would not call them."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "correct"
WARNS = ""


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, slope, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    y = tl.where(x < 0, x * slope, x)
    tl.store(y_ptr + offsets, y, mask=mask)


def relu(x, slope=0.0):
    x = x.contiguous()
    y = torch.empty_like(x)
    relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), slope, BLOCK=1024)
    return y


class Refused(dict):
    def __setitem__(self, name, value):
        raise NotImplementedError("the kernel calls no hook")


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self._forward_hooks, self._forward_pre_hooks = Refused(), Refused()

    def forward(self, x):
        return relu(x)
