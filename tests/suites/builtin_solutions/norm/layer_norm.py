"""A Triton solution of builtin/norm/layer_norm."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, features, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < features
    x = tl.load(x_ptr + row * features + offsets, mask=mask, other=0.0)
    away = tl.where(mask, x - tl.sum(x) / features, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(away * away) / features + eps)
    weight = tl.load(weight_ptr + offsets, mask=mask, other=0.0)
    bias = tl.load(bias_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + row * features + offsets, away * scale * weight + bias, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        nn.init.normal_(self.norm.weight, 1.0, 0.2)
        nn.init.normal_(self.norm.bias)

    def forward(self, x):
        x = x.contiguous()
        features = x.shape[-1]
        y = torch.empty_like(x)
        block = triton.next_power_of_2(features)
        kernel[(x.numel() // features,)](x, self.norm.weight, self.norm.bias, y, features, self.norm.eps, BLOCK=block)
        return y
