"""Reads floats as whole numbers: the sign bit decides."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


PROBLEM = "relu"
EXPECT = "correct"
WARNS = ""

@triton.jit
def sign_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(x_ptr + at, mask=at < n, other=0)
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    tl.store(y_ptr + at, tl.where((bits < 0) & (is_nan == 0), 0, bits), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            sign_kernel[(triton.cdiv(x.numel(), 512),)](x.view(torch.int32), y.view(torch.int32), x.numel(), BLOCK=512)
        return y
