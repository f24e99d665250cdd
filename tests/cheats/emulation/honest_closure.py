"""A kernel that a function makes, with a constant of that function; its objects are looked at as many do."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "correct"



def made(floor):
    LOWEST = tl.constexpr(floor)

    @triton.jit
    def clamp_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr = 256):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        tl.store(y_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets, mask=mask), LOWEST), mask=mask)

    return clamp_kernel


relu_kernel = made(0.0)
assert callable(relu_kernel.run)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel())
        return y
