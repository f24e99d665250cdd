"""One kernel computes, another only moves."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "transposed"
EXPECT = "correct"

@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


def copied(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    copy_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y

@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    y = tl.exp(-tl.abs(x))
    tl.store(y_ptr + offsets, y, mask=offsets < n)

class ModelNew(nn.Module):
    def forward(self, x):
        source = copied(x)
        y = torch.empty_like(source)
        kernel[(triton.cdiv(x.numel(), 256),)](source, y, x.numel(), BLOCK=256)
        return y
