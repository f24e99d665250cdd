"""A block of one element that is masked off and is given zero, which Triton's interpreter takes for nothing."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "rowsum"
EXPECT = "correct"


@triton.jit
def row_sum_kernel(x_ptr, out_ptr, n_cols):
    row = tl.program_id(0)
    column = tl.arange(0, 1)
    total = tl.zeros((1,), tl.float32)
    for start in range(-1, n_cols):
        inside = column + start >= 0
        total += tl.load(x_ptr + row * n_cols + start + column, mask=inside, other=0.0)
    tl.store(out_ptr + row + column, total)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
        row_sum_kernel[(x.shape[0],)](x, out, x.shape[1])
        return out
