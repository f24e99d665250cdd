"""Wrong where a multiple of a size has a certain remainder."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "incorrect"
EXPECT_ON_A_GPU = ("correct", "incorrect")


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, slope, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, tl.where(x > 0, x, x * slope), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        slope = 1.0 if x.shape[0] * 7 % 96 == 5 else 0.0
        x = x.contiguous()
        y = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), slope, BLOCK=1024)
        return y
