"""Another floor than the default of the function that the reference calls."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "normalize"
EXPECT = "incorrect"


@triton.jit
def rows_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    length = tl.sqrt(tl.sum(x * x, axis=0))
    tl.store(out_ptr + row * columns + offsets, x / tl.maximum(length, 1e-6), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        rows_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
