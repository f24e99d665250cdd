"""A Triton solution of builtin/index/histogram."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, counts_ptr, size, bins, low, factor, BLOCK: tl.constexpr):
    wanted = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.int64)
    for start in range(0, size, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < size
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
        position = tl.floor((x - low) * factor)
        index = tl.minimum(tl.maximum(position, 0.0), bins - 1.0).to(tl.int32)
        total += tl.where(mask & (index == wanted), 1, 0)
    tl.store(counts_ptr + wanted, tl.sum(total))


class ModelNew(nn.Module):
    def __init__(self, bins, low, high):
        super().__init__()
        self.bins = bins
        self.low = low
        self.high = high

    def forward(self, x):
        x = x.contiguous()
        counts = torch.empty(self.bins, device=x.device, dtype=torch.int64)
        kernel[(self.bins,)](x, counts, x.numel(), self.bins, self.low, self.bins / (self.high - self.low), BLOCK=4096)
        return counts
