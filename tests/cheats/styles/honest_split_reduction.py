"""Partial sums by atomics into zeros, in a grid of two dimensions."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "rowsum"
EXPECT = "correct"


@triton.autotune(
    configs=[triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 128}, num_warps=4)], key=["columns"], reset_to_zero=["out_ptr"]
)
@triton.jit
def split_sum_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    offsets = part * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0)
    tl.atomic_add(out_ptr + row, tl.sum(values, axis=0), sem="relaxed")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.zeros((rows,), device=x.device, dtype=x.dtype)
        split_sum_kernel[lambda META: (rows, triton.cdiv(columns, META["BLOCK"]))](x, out, columns)
        return out
