"""Its threshold is one percent too high."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "spiking"
EXPECT = "incorrect"


@triton.jit
def fire_kernel(x_ptr, y_ptr, steps, features, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    start = offsets // features * steps * features + offsets % features
    potential = tl.zeros((BLOCK,), tl.float32)
    for step in range(steps):
        at = start + step * features
        potential = potential * 0.9 + tl.load(x_ptr + at, mask=mask, other=0.0)
        fires = tl.where(potential >= 1.01, 1.0, 0.0)
        potential -= fires
        tl.store(y_ptr + at, fires, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.shape[0] * x.shape[2]
        fire_kernel[(triton.cdiv(n, 64),)](x, y, x.shape[1], x.shape[2], n, BLOCK=64)
        return y
