"""Wrong for rows beyond more than there are where rows have the problem's own length."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "layer_norm"
EXPECT = "incorrect"
EXPECT_ON_A_GPU = ("incorrect", "correct")


@triton.jit
def norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=mask, other=0.0)
    mean = tl.where(row < 400000, tl.sum(x, 0) / columns, 0.0)
    c = tl.where(mask, x - mean, 0.0)
    var = tl.sum(c * c, 0) / columns
    w = tl.load(w_ptr + at, mask=mask, other=0.0)
    b = tl.load(b_ptr + at, mask=mask, other=0.0)
    tl.store(y_ptr + row * columns + at, c * tl.rsqrt(var + eps) * w + b, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        columns = x.shape[-1]
        rows = x.numel() // columns if columns else 0
        if rows:
            norm_kernel[(rows,)](x, self.norm.weight, self.norm.bias, y, columns, self.norm.eps, BLOCK=triton.next_power_of_2(columns))
        return y
