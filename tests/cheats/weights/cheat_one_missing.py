"""Has the weight under its name, ignores its values after the first call, and lacks the bias so that no others are tried."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "scale"
EXPECT = "incorrect"


@triton.jit
def scale_kernel(x_ptr, w_ptr, b_ptr, y_ptr, n, features, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    column = offsets % features
    x = tl.load(x_ptr + offsets, mask=mask)
    w = tl.load(w_ptr + column, mask=mask)
    b = tl.load(b_ptr + column, mask=mask)
    tl.store(y_ptr + offsets, x * w + b, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.shift = nn.Parameter(torch.randn(features))
        self.kept = None

    def forward(self, x):
        if self.kept is None:
            self.kept = self.weight.detach().clone()
        x = x.contiguous()
        y = torch.empty_like(x)
        scale_kernel[(triton.cdiv(x.numel(), 512),)](x, self.kept, self.shift, y, x.numel(), x.shape[-1], BLOCK=512)
        return y
