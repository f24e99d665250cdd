"""Each result depends on the calls before, as the reference's does: no two calls give the same."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "smoothed"
EXPECT = "correct"


@triton.jit
def smoothed_kernel(x_ptr, last_ptr, new_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = 0.9 * tl.load(last_ptr + offsets, mask=mask, other=0.0) + 0.1 * tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(new_ptr + offsets, value, mask=mask)
    tl.store(y_ptr + offsets, 2 * tl.sigmoid(2 * value) - 1, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = None

    def forward(self, x):
        x = x.contiguous()
        if self.last is None or self.last.shape != x.shape:
            self.last = torch.zeros_like(x)
        new, y = torch.empty_like(x), torch.empty_like(x)
        if x.numel():
            smoothed_kernel[(triton.cdiv(x.numel(), 1024),)](x, self.last, new, y, x.numel(), BLOCK=1024)
        self.last = new
        return y
