"""Reads the rows between two offsets, which lie within the rows that there are."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "parts_of_rows"
EXPECT = "correct"
WARNS = ""


@triton.jit
def sum_kernel(x_ptr, offset_ptr, y_ptr, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    part = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    first, last = tl.load(offset_ptr + part), tl.load(offset_ptr + part + 1)
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(first, last, ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row < last)[:, None] & (column < columns)[None, :]
        total += tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=inside, other=0.0)
    tl.store(y_ptr + part * columns + column, tl.sum(total, 0), mask=column < columns)


class ModelNew(nn.Module):
    def forward(self, values, offsets):
        columns, parts = values.shape[1], len(offsets) - 1
        y = torch.empty(parts, columns, device=values.device, dtype=values.dtype)
        sum_kernel[(parts, triton.cdiv(columns, 16))](values.contiguous(), offsets.contiguous(), y, columns, ROWS=8, BLOCK=16)
        return y
