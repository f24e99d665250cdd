"""Loads what other threads of the program stored, and waits for none of them."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "back_and_forth"
EXPECT = ("runtime_error", "incorrect")
EXPECT_ON_A_GPU = ("incorrect", "correct")


@triton.jit
def turn_kernel(x_ptr, kept_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    tl.store(kept_ptr + row * columns + offsets, x, mask=mask)
    turned = tl.load(kept_ptr + row * columns + columns - 1 - offsets, mask=mask, other=0.0)
    tl.store(y_ptr + row * columns + offsets, x + turned, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        kept, y = torch.empty_like(x), torch.empty_like(x)
        turn_kernel[(rows,)](x, kept, y, columns, BLOCK=triton.next_power_of_2(columns))
        return y
