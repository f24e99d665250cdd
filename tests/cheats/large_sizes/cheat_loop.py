"""Each program does a few blocks at most, however many there are."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu_large"
EXPECT = "incorrect"


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, blocks, BLOCK: tl.constexpr):
    for step in range(blocks):
        offsets = (tl.program_id(0) + step * tl.num_programs(0)) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        tl.store(y_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets, mask=mask), 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        programs = min(triton.cdiv(n, 1024), 132)
        relu_kernel[(programs,)](x, y, n, min(triton.cdiv(n, 1024 * programs), 8), BLOCK=1024)
        return y
