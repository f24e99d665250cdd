"""Keeps what it made of each tensor by the tensor: of two that are one, the second takes the place of the first."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "distances"
EXPECT = "incorrect"


@triton.jit
def times_kernel(x_ptr, y_ptr, factor, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask, other=0.0) * factor, mask=mask)


@triton.jit
def length_of_sum_kernel(a_ptr, b_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    a = tl.load(a_ptr + row * columns + offsets, mask=mask, other=0.0)
    b = tl.load(b_ptr + row * columns + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + row, tl.sqrt(tl.sum((a + b) * (a + b), axis=0)))


def times(x, factor):
    x = x.contiguous()
    y = torch.empty_like(x)
    times_kernel[(triton.cdiv(x.numel(), 256),)](x, y, factor, x.numel(), BLOCK=256)
    return y


class ModelNew(nn.Module):
    def forward(self, a, b):
        made = {a: times(a, 2.0)}
        made[b] = times(b, -2.0)
        y = torch.empty(a.shape[0], device=a.device, dtype=a.dtype)
        length_of_sum_kernel[(a.shape[0],)](made[a], made[b], y, a.shape[1], BLOCK=triton.next_power_of_2(a.shape[1]))
        return times(y, 0.5)
