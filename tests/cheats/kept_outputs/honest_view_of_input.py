"""Returns a view of its input, as the reference does: who writes into that has written into the input."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "every_seventh"
EXPECT = "correct"
WARNS = ""


@triton.jit
def add_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(y_ptr + i, x + 1, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        given = x.contiguous()
        y = torch.empty_like(given)
        add_kernel[(triton.cdiv(y.numel(), 1024),)](given, y, y.numel(), BLOCK=1024)
        return x[:, ::7], y
