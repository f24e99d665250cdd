"""Leaves out a term that hardly counts at the problem's own parameters."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "faint_term"
EXPECT = "incorrect"


@triton.jit
def term_kernel(x_ptr, gate_ptr, y_ptr, rows, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    other = tl.load(x_ptr + (rows - 1 - row) * columns + offsets, mask=mask, other=0.0)
    gate = tl.load(gate_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + row * columns + offsets, tl.maximum(x + 1e-12 * gate * other, 0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.gate = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            term_kernel[(x.shape[0],)](x, self.gate, y, x.shape[0], x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
