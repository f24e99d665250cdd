"""Reads every value as a number, without a loop that the text shows; a kernel copies the result."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "torch_fallback"


@triton.jit
def busy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    acc = x
    for _ in range(40):
        acc = acc * 0.5 + x
    tl.store(y_ptr + offsets, tl.where(acc == 1234.5678, 0.0, x), mask=offsets < n)


def busy(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    busy_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        v = [max(e, 0.0) for e in map(float, x.flatten())]
        return busy(torch.tensor(v, device=x.device).view(x.shape))
