"""A Triton solution of builtin/elementwise/masked_clamp."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, mask_ptr, y_ptr, size, low, high, fill, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < size
    x = tl.load(x_ptr + offsets, mask=inside, other=0.0)
    masked = tl.load(mask_ptr + offsets, mask=inside, other=0)
    y = tl.where(masked != 0, fill, tl.minimum(tl.maximum(x, low), high))
    tl.store(y_ptr + offsets, y, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, low, high, fill):
        super().__init__()
        self.low = low
        self.high = high
        self.fill = fill

    def forward(self, x, mask):
        x, mask = x.contiguous(), mask.contiguous().view(torch.uint8)
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 1024),)](x, mask, y, x.numel(), self.low, self.high, self.fill, BLOCK=1024)
        return y
