"""A ring of a hundred output tensors, each made when it is first needed."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "incorrect"


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets, mask=mask, other=0.0), 0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.ring, self.calls = {}, 0

    def forward(self, x):
        x = x.contiguous()
        self.calls = (self.calls + 1) % 100
        key = x.shape, self.calls
        if key not in self.ring:
            self.ring[key] = torch.empty_like(x)
        y = self.ring[key]
        relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
