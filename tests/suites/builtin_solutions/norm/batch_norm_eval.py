"""A Triton solution of builtin/norm/batch_norm_eval."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, weight_ptr, bias_ptr, mean_ptr, variance_ptr, y_ptr, size, channels, pixels, eps, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    channel = offsets // pixels % channels
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    mean = tl.load(mean_ptr + channel, mask=mask, other=0.0)
    variance = tl.load(variance_ptr + channel, mask=mask, other=1.0)
    weight = tl.load(weight_ptr + channel, mask=mask, other=0.0)
    bias = tl.load(bias_ptr + channel, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, (x - mean) / tl.sqrt(variance + eps) * weight + bias, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        nn.init.normal_(self.norm.weight, 1.0, 0.2)
        nn.init.normal_(self.norm.bias)
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2.0)
        self.eval()

    def forward(self, x):
        if self.training:
            raise NotImplementedError("written for eval() mode")
        x = x.contiguous()
        n = self.norm
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 1024),)](
            x, n.weight, n.bias, n.running_mean, n.running_var, y, x.numel(), x.shape[1], x.shape[2] * x.shape[3], n.eps, BLOCK=1024
        )
        return y
