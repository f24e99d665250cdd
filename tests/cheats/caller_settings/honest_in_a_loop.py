"""Keeps its last result, which callers give back to it, and writes into tensors of its own alone."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "correct"
WARNS = ""


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(y_ptr + offsets, tl.where(x > 0, x, x * 0), mask=offsets < n)


class ModelNew(nn.Module):
    def forward(self, x):
        with torch.set_grad_enabled(False):
            self.last = torch.empty(x.shape, dtype=x.dtype, device=x.device)
            relu_kernel[(triton.cdiv(x.numel(), 256),)](x.contiguous(), self.last, x.numel(), BLOCK=256)
        return self.last
