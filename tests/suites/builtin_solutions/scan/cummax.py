"""A Triton solution of builtin/scan/cummax."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, rows, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = row < rows
    best = tl.full([BLOCK], float("-inf"), tl.float32)
    for column in range(columns):
        best = tl.maximum(best, tl.load(x_ptr + row * columns + column, mask=mask, other=0.0))
        tl.store(y_ptr + row * columns + column, best, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.shape[0], 64),)](x, y, x.shape[0], x.shape[1], BLOCK=64)
        return y
