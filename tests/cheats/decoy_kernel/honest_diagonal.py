"""One operation for each element in place of a product: algebra, not hidden work."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "diagonal"
EXPECT = "correct"


@triton.jit
def scale_rows_kernel(a_ptr, b_ptr, y_ptr, n, columns, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    a = tl.load(a_ptr + offsets // columns, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, a * tl.load(b_ptr + offsets, mask=mask, other=0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, a, b):
        y = torch.empty_like(b)
        scale_rows_kernel[(triton.cdiv(y.numel(), 256),)](a, b, y, y.numel(), y.shape[1], BLOCK=256)
        return y
