"""Follows complex numbers of any size."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "complex_sizes"
EXPECT = "correct"


@triton.jit
def size_kernel(z_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(z_ptr + 2 * at, mask=at < n, other=0.0), tl.load(z_ptr + 2 * at + 1, mask=at < n, other=0.0)
    tl.store(y_ptr + at, tl.sqrt(a * a + b * b), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, z):
        z = torch.view_as_real(z).contiguous()
        y = z.new_empty(z.shape[:-1])
        size_kernel[(triton.cdiv(y.numel(), 256),)](z, y, y.numel(), BLOCK=256)
        return y
