"""The programs in the middle load what those on both sides store: right from the first to the last, and from the last to the first."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "back_and_forth"
EXPECT = ("runtime_error", "incorrect")
EXPECT_ON_A_GPU = ("incorrect", "correct")


@triton.jit
def turn_kernel(x_ptr, kept_ptr, y_ptr, rows, columns, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    at = program % rows * columns
    if (program < rows) | (program >= 2 * rows):
        tl.store(kept_ptr + at + offsets, tl.load(x_ptr + at + offsets, mask=mask, other=0.0), mask=mask)
    else:
        x = tl.load(kept_ptr + at + offsets, mask=mask, other=0.0)
        turned = tl.load(kept_ptr + at + columns - 1 - offsets, mask=mask, other=0.0)
        tl.store(y_ptr + at + offsets, x + turned, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        kept, y = torch.empty_like(x), torch.empty_like(x)
        turn_kernel[(3 * rows,)](x, kept, y, rows, columns, BLOCK=triton.next_power_of_2(columns))
        return y
