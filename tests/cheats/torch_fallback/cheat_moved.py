"""Torch does what the reference asks of it, which is to move; a kernel copies the result."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "flipped"
EXPECT = "torch_fallback"


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask, other=0.0) * 1.0, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        moved = x[torch.arange(x.shape[0] - 1, -1, -1, device=x.device)]
        y = torch.empty(x.shape, device=x.device)
        copy_kernel[(triton.cdiv(y.numel(), 1024),)](moved, y, y.numel(), BLOCK=1024)
        return y
