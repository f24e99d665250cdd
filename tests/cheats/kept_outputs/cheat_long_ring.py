"""Returns one of many tensors that it keeps; the first is overwritten long after the trials."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "incorrect"
EXPECT_ON_A_GPU = ("incorrect", "correct")


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0), mask=mask)


def relu(x, y):
    relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.ring, self.calls = [], 0

    def forward(self, x):
        x = x.contiguous()
        if not self.ring or self.ring[0].shape != x.shape:
            self.ring = [torch.empty_like(x) for _ in range(256)]
        self.calls += 1
        return relu(x, self.ring[self.calls % len(self.ring)])
