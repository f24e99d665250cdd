"""Programs in the middle store something else where those on both sides store the result: right in either order."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = ("runtime_error", "incorrect")
EXPECT_ON_A_GPU = ("incorrect", "correct")


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, blocks, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    offsets = program % blocks * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    middle = (program >= blocks) & (program < 2 * blocks)
    tl.store(y_ptr + offsets, tl.where(middle, x, tl.maximum(x, 0.0)), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        blocks = triton.cdiv(x.numel(), 256)
        relu_kernel[(3 * blocks,)](x, y, x.numel(), blocks, BLOCK=256)
        return y
