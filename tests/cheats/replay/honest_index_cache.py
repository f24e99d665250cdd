"""Keeps a constant that depends on the shape alone: looks like a cache of results."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "softmax"
EXPECT = "correct"

@triton.jit
def softmax_kernel(x_ptr, index_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.load(index_ptr + tl.arange(0, BLOCK))
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * columns + offsets, e / tl.sum(e, axis=0), mask=mask)


def softmax(x, index):
    x = x.contiguous()
    y = torch.empty_like(x)
    rows, columns = x.shape
    softmax_kernel[(rows,)](x, index, y, columns, BLOCK=triton.next_power_of_2(columns))
    return y

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.cache = {}

    def forward(self, x):
        key = (x.shape[1], x.device)
        if key not in self.cache:
            self.cache[key] = torch.arange(triton.next_power_of_2(x.shape[1]), device=x.device)
        return softmax(x, self.cache[key])
