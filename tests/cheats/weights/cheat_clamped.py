"""Weights are held within bounds that none of them reaches when the model is built."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "rms_norm"
EXPECT = "incorrect"


@triton.jit
def rows_kernel(x_ptr, weight_ptr, y_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
    weight = tl.load(weight_ptr + at, mask=at < columns, other=0.0)
    weight = tl.minimum(tl.maximum(weight, -8.0), 8.0)
    tl.store(y_ptr + row * columns + at, x * tl.rsqrt(tl.sum(x * x, 0) / columns + eps) * weight, mask=at < columns)


class ModelNew(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(hidden) + 0.5)

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        columns = x.shape[-1]
        if x.numel():
            rows_kernel[(x.numel() // columns,)](x, self.weight, y, columns, 1e-6, BLOCK=triton.next_power_of_2(columns))
        return y
