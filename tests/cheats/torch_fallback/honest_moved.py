"""A kernel moves the rows, where the reference does nothing else; the host reads a count and a short table."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "flipped"
EXPECT = "correct"


@triton.jit
def count_kernel(counts_ptr, rows, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    tl.store(counts_ptr + block, tl.minimum(rows - block * BLOCK, BLOCK))


@triton.jit
def flip_kernel(x_ptr, y_ptr, first, rows, columns, BLOCK: tl.constexpr):
    row = first + tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    tl.store(y_ptr + row * columns + offsets, tl.load(x_ptr + (rows - 1 - row) * columns + offsets, mask=mask), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty_like(x)
        counts = torch.empty(triton.cdiv(rows, 8), dtype=torch.int32, device=x.device)
        count_kernel[(counts.numel(),)](counts, rows, BLOCK=8)
        for block, count in enumerate(counts.tolist()):
            flip_kernel[(count,)](x, y, 8 * block, rows, columns, BLOCK=triton.next_power_of_2(columns))
        return y
