"""Its own dropout, which draws random numbers in training mode as the reference's does."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "dropped_in_training"
EXPECT = "correct"


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + at, tl.maximum(x, 0.0), mask=at < n)


class ModelNew(nn.Module):
    def __init__(self, share):
        super().__init__()
        self.drop = nn.Dropout(share)
        self.eval()

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            relu_kernel[(triton.cdiv(x.numel(), 512),)](x, y, x.numel(), BLOCK=512)
        return self.drop(y)
