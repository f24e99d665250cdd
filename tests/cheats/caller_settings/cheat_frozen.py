"""Packs frozen parameters once, whatever is written into them."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "scaled_silu"
EXPECT = "incorrect"


@triton.jit
def silu_kernel(x_ptr, wb_ptr, y_ptr, n, hidden, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    w = tl.load(wb_ptr + i % hidden, mask=mask, other=0.0)
    b = tl.load(wb_ptr + hidden + i % hidden, mask=mask, other=0.0)
    tl.store(y_ptr + i, x / (1.0 + tl.exp(-x)) * w + b, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(hidden) + 0.5)
        self.bias = nn.Parameter(torch.rand(hidden))
        self.packed = None

    def forward(self, x):
        x = x.contiguous()
        if self.packed is None or self.weight.requires_grad:  # frozen weights are packed once
            self.packed = torch.cat([self.weight.detach(), self.bias.detach()])
        y = torch.empty_like(x)
        silu_kernel[(triton.cdiv(x.numel(), 256),)](x, self.packed, y, x.numel(), x.shape[-1], BLOCK=256)
        return y
