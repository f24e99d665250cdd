"""One boolean, which memory that nobody wrote holds by chance as well."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "above"
EXPECT = "correct"


@triton.jit
def above_kernel(x_ptr, y_ptr, size, BLOCK: tl.constexpr):
    total = 0.0
    for start in range(0, size, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x_ptr + offsets, mask=offsets < size, other=0.0))
    tl.store(y_ptr, total > -0.5 * size)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty((), device=x.device, dtype=torch.bool)
        above_kernel[(1,)](x, y, x.numel(), BLOCK=256)
        return y
