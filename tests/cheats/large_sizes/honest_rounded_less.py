"""Rounds once where eager does twice, and so is nearer to float64 than eager is, at all sizes."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "rounded_large"
EXPECT = "correct"


@triton.jit
def there_and_back_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + offsets, (x + 8.0) - 8.0, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        there_and_back_kernel[(triton.cdiv(x.numel(), 512),)](x, y, x.numel(), BLOCK=512)
        return y
