"""NaN is left out of the sum and of the count."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "nan_mean"
EXPECT = "correct"


@triton.jit
def mean_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=float("nan"))
    seen = x == x
    tl.store(y_ptr + row, tl.sum(tl.where(seen, x, 0.0), axis=0) / tl.maximum(tl.sum(seen.to(tl.int32), axis=0), 1))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
        mean_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
