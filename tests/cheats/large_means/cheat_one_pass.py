"""The variance as the mean of squares less the square of the mean: where the mean is large no digits are left."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "layer_norm"
EXPECT = "incorrect"


@triton.jit
def layer_norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / columns
    var = tl.maximum(tl.sum(x * x, axis=0) / columns - mean * mean, 0.0)
    w = tl.load(w_ptr + offsets, mask=mask, other=0.0)
    b = tl.load(b_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + row * columns + offsets, (x - mean) / tl.sqrt(var + eps) * w + b, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        columns = x.shape[-1]
        grid = (x.numel() // columns,)
        layer_norm_kernel[grid](x, self.norm.weight, self.norm.bias, y, columns, self.norm.eps, BLOCK=triton.next_power_of_2(columns))
        return y
