"""Masked lanes hold minus infinity."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "row_maximum"
EXPECT = "correct"
WARNS = ""


@triton.jit
def max_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * columns + at, mask=at < columns, other=-float("inf"))
    tl.store(y_ptr + tl.program_id(0), tl.max(x, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        if x.shape[0]:
            max_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
