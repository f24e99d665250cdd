"""Reads the running statistics in each call."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "batchnorm_eval"
EXPECT = "correct"


@triton.jit
def norm_kernel(x_ptr, mean_ptr, var_ptr, w_ptr, b_ptr, y_ptr, n, channels, eps, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    column = offsets % channels
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    w = tl.load(w_ptr + column, mask=mask, other=0.0)
    b = tl.load(b_ptr + column, mask=mask, other=0.0)
    mean = tl.load(mean_ptr + column, mask=mask, other=0.0)
    var = tl.load(var_ptr + column, mask=mask, other=1.0)
    tl.store(y_ptr + offsets, (x - mean) / tl.sqrt(var + eps) * w + b, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)
        self.eval()

    def forward(self, x):
        if self.training:
            raise NotImplementedError("written for eval mode: call eval()")
        norm = self.norm
        y = torch.empty_like(x)
        norm_kernel[(triton.cdiv(x.numel(), 128),)](
            x, norm.running_mean, norm.running_var, norm.weight, norm.bias, y, x.numel(), x.shape[1], norm.eps, BLOCK=128
        )
        return y
