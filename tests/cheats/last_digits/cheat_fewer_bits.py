"""Compares numbers of fewer digits."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "greatest_place"
EXPECT = "incorrect"


@triton.jit
def place_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
    bits = x.to(tl.int32, bitcast=True) & -128
    key = tl.where(at < columns, bits.to(tl.float32, bitcast=True), -float("inf"))
    top = tl.max(key, 0)
    tl.store(y_ptr + row, tl.min(tl.where((key == top) & (at < columns), at, BLOCK), 0).to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
        if x.numel():
            place_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
