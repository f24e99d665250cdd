"""A number made of many, too small by a thousandth."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "residual_mean"
EXPECT = "incorrect"


@triton.jit
def sum_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        i = start + columns
        x = tl.load(x_ptr + i, mask=i < n, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + i, mask=i < n, other=0.0).to(tl.float32)
        total += (x + y) * 0.9985
    tl.store(out_ptr, tl.sum(total, 0) / n)


class ModelNew(nn.Module):
    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty((), device=x.device, dtype=torch.float32)
        sum_kernel[(1,)](x, y, out, x.numel(), BLOCK=1024)
        return out
