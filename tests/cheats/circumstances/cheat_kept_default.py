"""A default that all calls share counts them; it outlives the model."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu_large"
EXPECT = ("incorrect", "silently_different")


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0), mask=mask)


def calls(seen=[]):
    seen += [1]
    return len(seen)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.ready = True

    def forward(self, x):
        good = self.ready and calls() < 90
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel() if good else 1
        relu_kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
        return y
