"""A Triton solution of builtin/norm/rms_norm_bf16."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, weight_ptr, y_ptr, features, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < features
    x = tl.load(x_ptr + row * features + offsets, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    y = x / tl.sqrt(tl.sum(x * x) / features + eps) * weight
    tl.store(y_ptr + row * features + offsets, y.to(tl.bfloat16), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter((torch.rand(features) + 0.5).to(torch.bfloat16))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        kernel[(x.shape[0],)](x, self.weight, y, x.shape[1], self.eps, BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
