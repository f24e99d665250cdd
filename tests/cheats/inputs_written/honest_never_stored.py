"""Can work in place and does not: no store into the input ever has an active lane. Its scratch is its own, cut from one buffer."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "rowsum"
EXPECT = "correct"


@triton.jit
def rowsum_kernel(x_ptr, scratch_ptr, y_ptr, columns, in_place, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0)
        total += x
        tl.store(x_ptr + row * columns + offsets, x, mask=(offsets < columns) & (in_place != 0))
    tl.store(scratch_ptr + row, tl.sum(total, axis=0))
    tl.store(y_ptr + row, tl.load(scratch_ptr + row))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        both = torch.empty(2 * rows, device=x.device, dtype=x.dtype)
        scratch, y = both[:rows], both[rows:]
        scratch.zero_()
        rowsum_kernel[(rows,)](x, scratch, y, columns, 0, BLOCK=128)
        return y
