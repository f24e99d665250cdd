"""Sums the logarithms of each row."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "logarithms"
EXPECT = "correct"


@triton.jit
def logarithms_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=1.0)
    tl.store(y_ptr + row, tl.sum(tl.log(x), axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.shape[0], device=x.device)
        if x.shape[0]:
            logarithms_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(max(x.shape[1], 1)))
        return y
