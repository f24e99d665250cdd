"""Does a part of the work once it was called so often that outputs may no longer be looked at. Nothing is timed on a CPU."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "correct"
EXPECT_ON_A_GPU = "timed_output"


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets, mask=mask, other=0.0), 0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        x = x.contiguous()
        y = torch.zeros_like(x)
        n = x.numel() if self.calls < 150 else 1024
        relu_kernel[(triton.cdiv(n, 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
