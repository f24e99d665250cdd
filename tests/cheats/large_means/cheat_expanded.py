"""The square of a difference as two squares less twice the product: where both are large and near, rounding is left."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "distances"
EXPECT = "incorrect"


@triton.jit
def distance_kernel(a_ptr, b_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    a = tl.load(a_ptr + row * columns + offsets, mask=mask, other=0.0)
    b = tl.load(b_ptr + row * columns + offsets, mask=mask, other=0.0)
    aa, bb, ab = tl.sum(a * a, axis=0), tl.sum(b * b, axis=0), tl.sum(a * b, axis=0) 
    tl.store(y_ptr + row, tl.sqrt(tl.maximum(aa + bb - 2.0 * ab, 0.0)))


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        y = torch.empty(a.shape[0], device=a.device, dtype=a.dtype)
        distance_kernel[(a.shape[0],)](a, b, y, a.shape[1], BLOCK=triton.next_power_of_2(a.shape[1]))
        return y
