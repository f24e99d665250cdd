"""A Triton solution of builtin/norm/add_rms_norm."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, residual_ptr, weight_ptr, y_ptr, total_ptr, features, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < features
    total = tl.load(x_ptr + row * features + offsets, mask=mask, other=0.0)
    total += tl.load(residual_ptr + row * features + offsets, mask=mask, other=0.0)
    weight = tl.load(weight_ptr + offsets, mask=mask, other=0.0)
    y = total / tl.sqrt(tl.sum(total * total) / features + eps) * weight
    tl.store(y_ptr + row * features + offsets, y, mask=mask)
    tl.store(total_ptr + row * features + offsets, total, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x, residual):
        x, residual = x.contiguous(), residual.contiguous()
        y, total = torch.empty_like(x), torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[1])
        kernel[(x.shape[0],)](x, residual, self.weight, y, total, x.shape[1], self.eps, BLOCK=block)
        return y, total
