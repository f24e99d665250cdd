"""A number among the arguments of a launch computes when the interpreter reads it."""

import torch
import torch.nn as nn
import triton
import triton.language as tl
import numpy

PROBLEM = "relu"
EXPECT = "runtime_error"


@triton.jit
def add_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    y = tl.load(y_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, y + x * 0.0, mask=mask)


class Shared:
    x = y = None


def work():
    Shared.y.copy_(torch.relu(Shared.x))


class Count(int):
    def __index__(self):
        work()
        return int.__index__(self)

    def __array__(self, *args, **kwargs):
        work()
        return numpy.array(int.__index__(self))



class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.zeros_like(x)
        Shared.x, Shared.y = x, y
        add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, Count(x.numel()), BLOCK=1024)
        return y
