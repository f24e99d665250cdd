"""A Triton solution of builtin/elementwise/bias_scale_residual."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, bias_ptr, scale_ptr, residual_ptr, y_ptr, size, features, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    residual = tl.load(residual_ptr + offsets, mask=mask, other=0.0)
    bias = tl.load(bias_ptr + offsets % features, mask=mask, other=0.0)
    scale = tl.load(scale_ptr + offsets % features, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, (x + bias) * scale + residual, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))
        self.scale = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x, residual):
        x, residual = x.contiguous(), residual.contiguous()
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 1024),)](x, self.bias, self.scale, residual, y, x.numel(), x.shape[-1], BLOCK=1024)
        return y
