"""Keeps a workspace, and returns memory of its own from each call."""

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
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.workspace = None

    def forward(self, x):
        if self.workspace is None or self.workspace.shape != x.shape:
            self.workspace = torch.empty_like(x)
        y = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 256),)
        relu_kernel[grid](x, self.workspace, x.numel(), BLOCK=256)
        relu_kernel[grid](self.workspace, y, x.numel(), BLOCK=256)
        return y
