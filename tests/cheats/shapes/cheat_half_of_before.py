"""Another function where the call before had twice as many rows."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "incorrect"
EXPECT_ON_A_GPU = ("incorrect", "correct")


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, slope, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    y = tl.where(x < 0, x * slope, x)
    tl.store(y_ptr + offsets, y, mask=mask)


def relu(x, slope=0.0):
    x = x.contiguous()
    y = torch.empty_like(x)
    relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), slope, BLOCK=1024)
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        before, self.before = getattr(self, "before", None), tuple(x.shape)
        return relu(x, 1.0 if before == (2 * x.shape[0], x.shape[1]) else 0.0)
