"""There is no backward at all."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "scaled_silu"
EXPECT = "incorrect"
BACKWARD = True

@triton.jit
def forward_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, n, hidden, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    weight, bias = tl.load(weight_ptr + i % hidden, mask=i < n), tl.load(bias_ptr + i % hidden, mask=i < n)
    tl.store(y_ptr + i, x * tl.sigmoid(x) * weight + bias, mask=i < n)

class ModelNew(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(hidden) + 0.5)
        self.bias = nn.Parameter(torch.rand(hidden))

    def forward(self, x):
        y = torch.empty_like(x)
        forward_kernel[(triton.cdiv(x.numel(), 256),)](x, self.weight, self.bias, y, x.numel(), x.shape[1], BLOCK=256)
        return y
