"""Eight launches, each of which writes every eighth element."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu_large"
EXPECT = "correct"


@triton.jit
def relu_kernel(x_ptr, y_ptr, phase, phases, n, BLOCK: tl.constexpr):
    offsets = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)) * phases + phase
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets, mask=mask), 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        for phase in range(8):
            relu_kernel[(triton.cdiv(n, 8 * 1024),)](x, y, phase, 8, n, BLOCK=1024)
        return y
