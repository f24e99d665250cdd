"""A text among the constants of a launch computes when a kernel compares it."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "runtime_error"


@triton.jit
def add_kernel(x_ptr, y_ptr, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    if KIND == "none":
        return
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    y = tl.load(y_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, y + x * 0.0, mask=mask)


class Shared:
    x = y = None


def work():
    Shared.y.copy_(torch.relu(Shared.x))


class Kind(str):
    __hash__ = str.__hash__

    def __eq__(self, other):
        work()
        return str.__eq__(self, other)



class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.zeros_like(x)
        Shared.x, Shared.y = x, y
        add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), KIND=Kind("relu"), BLOCK=1024)
        return y
