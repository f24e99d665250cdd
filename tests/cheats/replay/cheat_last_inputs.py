"""Results of the last call are kept: when its inputs come again, a kernel copies them, with arithmetic that changes nothing."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "replay"
EXPECT_ON_A_GPU = ("replay", "torch_fallback", "timed_launches", "correct")


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets, offsets < n, 0.0), 0), offsets < n)


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, offsets < n, 0.0) * 1.0 + 0.0, offsets < n)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = None

    def forward(self, x):
        y, grid = torch.empty_like(x), (triton.cdiv(x.numel(), 1024),)
        if self.kept is not None and torch.equal(self.kept[0], x):
            copy_kernel[grid](self.kept[1], y, x.numel(), BLOCK=1024)
            return y
        relu_kernel[grid](x, y, x.numel(), BLOCK=1024)
        self.kept = x.clone(), y.clone()
        return y
