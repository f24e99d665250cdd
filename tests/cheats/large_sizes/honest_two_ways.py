"""Large tensors take larger blocks, and a second launch for the rest."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu_large"
EXPECT = "correct"


@triton.jit
def relu_kernel(x_ptr, y_ptr, first, n, BLOCK: tl.constexpr):
    offsets = first + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets, mask=mask), 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        large = n // 4096 if n > 1_000_000 else 0
        if large:
            relu_kernel[(large,)](x, y, 0, n - n % 4096, BLOCK=4096)
        if n - large * 4096:
            relu_kernel[(triton.cdiv(n - large * 4096, 256),)](x, y, large * 4096, n, BLOCK=256)
        return y
