"""Its parameters are in a list as well, which a copy has of its own. That others may take their place is a warning."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "scale"
EXPECT = "correct"


@triton.jit
def scale_kernel(x_ptr, w_ptr, b_ptr, y_ptr, n, features, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    x = tl.load(x_ptr + o, mask=m, other=0.0)
    w = tl.load(w_ptr + o % features, mask=m, other=0.0)
    b = tl.load(b_ptr + o % features, mask=m, other=0.0)
    tl.store(y_ptr + o, x * w + b, mask=m)


def scaled(x, w, b):
    x = x.contiguous()
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 256),)](x, w, b, y, x.numel(), x.shape[-1], BLOCK=256)
    return y


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.randn(features))
        self.both = [self.weight, self.bias]

    def forward(self, x):
        return scaled(x, *self.both)
