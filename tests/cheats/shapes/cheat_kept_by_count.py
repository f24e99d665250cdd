"""Strides that are kept for as long as the number of elements stays."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "rowsum"
EXPECT = "incorrect"
EXPECT_ON_A_GPU = ("incorrect", "correct")


@triton.jit
def rows_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + row, tl.sum(tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0), 0))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        if getattr(self, "count", None) != x.numel():
            self.count, self.columns = x.numel(), x.shape[1]
        y = torch.zeros(x.shape[0], device=x.device)
        if x.numel():
            rows_kernel[(x.shape[0],)](x, y, self.columns, BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
