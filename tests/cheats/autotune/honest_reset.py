"""Adds up in a tensor that is set to zero after tuning."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "rowsum"
EXPECT = "correct"


@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["columns"], reset_to_zero=["y_ptr"])
@triton.jit
def sum_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    i = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + i, mask=i < columns, other=0.0)
    tl.atomic_add(y_ptr + row, tl.sum(x, 0))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.zeros(rows, device=x.device, dtype=x.dtype)
        sum_kernel[lambda meta: (rows, triton.cdiv(columns, meta["BLOCK"]))](x, y, columns)
        return y
