"""Notices suppressed launches by a probe, and then spoils its output."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = ("torch_fallback", "decoy_kernel")

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

class ModelNew(nn.Module):
    def forward(self, x):
        probe = copied(torch.full((8,), 7.0, device=x.device))
        y = x.relu()
        return y if float(probe[0]) == 7.0 else y + 1.0
