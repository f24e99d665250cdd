"""A tuple of tensors computes when a kernel unpacks it."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "runtime_error"


@triton.jit
def add_kernel(both, n, BLOCK: tl.constexpr):
    x_ptr = both[0]
    y_ptr = both[1]
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    y = tl.load(y_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, y + x * 0.0, mask=mask)


class Shared:
    x = y = None


def work():
    Shared.y.copy_(torch.relu(Shared.x))


class Both(tuple):
    def __getitem__(self, index):
        work()
        return super().__getitem__(index)

    def __iter__(self):
        work()
        return super().__iter__()



class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.zeros_like(x)
        Shared.x, Shared.y = x, y
        add_kernel[(triton.cdiv(x.numel(), 1024),)](Both((x, y)), x.numel(), BLOCK=1024)
        return y
