"""Both outputs are parts of one allocation, and share no element."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "twice_relu"
EXPECT = "correct"


@triton.jit
def relu_kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.maximum(tl.load(x_ptr + i, mask=i < n, other=0.0), 0.0)
    tl.store(y_ptr + i, y, mask=i < n)
    tl.store(z_ptr + i, y, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        both = torch.empty((2, *x.shape), device=x.device, dtype=x.dtype)
        relu_kernel[(triton.cdiv(x.numel(), 256),)](x, both[0], both[1], x.numel(), BLOCK=256)
        return both[0], both[1]
