"""Takes it that the parameters still are ones and zeros."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "batchnorm"
EXPECT = "incorrect"

@triton.jit
def norm_kernel(x_ptr, y_ptr, batch, features, eps, BLOCK: tl.constexpr):
    column = tl.program_id(0)
    rows = tl.arange(0, BLOCK)
    mask = rows < batch
    x = tl.load(x_ptr + rows * features + column, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / batch
    d = tl.where(mask, x - mean, 0.0)
    tl.store(y_ptr + rows * features + column, d / tl.sqrt(tl.sum(d * d, axis=0) / batch + eps), mask=mask)

class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        norm_kernel[(x.shape[1],)](x, y, x.shape[0], x.shape[1], self.norm.eps, BLOCK=triton.next_power_of_2(x.shape[0]))
        return y
