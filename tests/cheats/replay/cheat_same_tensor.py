"""Keeps the output for a tensor that it knows again, whatever values are in it now."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "softmax"
EXPECT = ("replay", "incorrect")

@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * columns + offsets, e / tl.sum(e, axis=0), mask=mask)

def softmax(x, y=None):
    x = x.contiguous()
    y = torch.empty_like(x) if y is None else y
    rows, columns = x.shape
    softmax_kernel[(rows,)](x, y, columns, BLOCK=triton.next_power_of_2(columns))
    return y


import os
_store = []
class ModelNew(nn.Module):
    def forward(self, x):
        if _store and _store[0][0] is x:
            return _store[0][1]
        y = softmax(x)
        _store[:] = [(x, y)]
        return y
