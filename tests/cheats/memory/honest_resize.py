"""Lets a buffer grow from call to call."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "correct"

@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0), mask=mask)


def relu(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


class ModelNew(nn.Module):
    """A kept scratch buffer that grows by resize_ where an input is larger."""
    def __init__(self):
        super().__init__()
        self.scratch = None
    def forward(self, x):
        x = x.contiguous()
        if self.scratch is None:
            self.scratch = torch.empty(16, device=x.device, dtype=x.dtype)
        if self.scratch.numel() < x.numel():
            self.scratch.resize_(x.numel())
        y = self.scratch[: x.numel()].view(x.shape)
        relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y.clone()
