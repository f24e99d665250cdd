"""Says that every row begins at a multiple of 16, as it does at the original size alone."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "runtime_error"
EXPECT_ON_A_GPU = ("runtime_error", "correct")  # a GPU believes it, and it may do no harm


@triton.jit
def relu_kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    base = tl.multiple_of(row * cols, 16)
    for start in range(0, cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + base + c, mask=c < cols, other=0.0)
        tl.store(y_ptr + base + c, tl.maximum(x, 0.0), mask=c < cols)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        relu_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=128)
        return y
