"""What is kept of a shape is made anew for another one, though it has as many elements."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "rowsum"
EXPECT = "correct"


@triton.jit
def rows_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + row, tl.sum(tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0), 0))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        if getattr(self, "shape", None) != x.shape:
            self.shape, self.columns = x.shape, x.shape[1]
        y = torch.zeros(x.shape[0], device=x.device)
        if x.numel():
            rows_kernel[(x.shape[0],)](x, y, self.columns, BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
