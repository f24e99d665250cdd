"""Keeps the order of the indices for a tensor that it knows again."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "group_sums"
EXPECT = "incorrect"


@triton.jit
def k(x_ptr, o_ptr, start_ptr, y_ptr, width, BLOCK: tl.constexpr):
    g = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    lo = tl.load(start_ptr + g)
    hi = tl.load(start_ptr + g + 1)
    acc = tl.zeros((BLOCK,), tl.float32)
    for i in range(lo, hi):
        r = tl.load(o_ptr + i)
        acc += tl.load(x_ptr + r * width + c, mask=c < width, other=0.0)
    tl.store(y_ptr + g * width + c, acc, mask=c < width)

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self._ids = None

    def forward(self, x, ids):
        x = x.contiguous()
        if ids is not self._ids:
            self._ids = ids
            sorted_ids, self._order = torch.sort(ids, stable=True)
            self._start = torch.searchsorted(sorted_ids, torch.arange(33, device=x.device))
        y = torch.empty(32, x.shape[1], device=x.device)
        k[(32,)](x, self._order, self._start, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
