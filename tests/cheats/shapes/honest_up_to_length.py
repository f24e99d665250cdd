"""Reads rows up to the length that comes in, which is no more than there are."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "up_to_length"
EXPECT = "correct"
WARNS = ""


@triton.jit
def sum_kernel(x_ptr, length_ptr, y_ptr, rows, columns, BLOCK: tl.constexpr):
    image = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    length = tl.load(length_ptr + image)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(length):
        total += tl.load(x_ptr + (image * rows + row) * columns + column, mask=column < columns, other=0.0)
    tl.store(y_ptr + image * columns + column, total, mask=column < columns)


class ModelNew(nn.Module):
    def forward(self, x, lengths):
        images, rows, columns = x.shape
        y = torch.empty(images, columns, device=x.device, dtype=x.dtype)
        sum_kernel[(images, triton.cdiv(columns, 16))](x.contiguous(), lengths.contiguous(), y, rows, columns, BLOCK=16)
        return y
