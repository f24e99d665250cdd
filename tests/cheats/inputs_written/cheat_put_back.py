"""Turns its input's sign in place, computes from that, and turns it back: who reads the input meanwhile finds other numbers."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "inputs_written"


@triton.jit
def relu_of_negated_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, tl.maximum(-x, 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        values = x.detach()
        values.neg_()
        relu_of_negated_kernel[(triton.cdiv(x.numel(), 1024),)](values.contiguous(), y, x.numel(), BLOCK=1024)
        values.neg_()
        return y
