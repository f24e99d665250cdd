"""Numbers that are handed to a kernel and a loop's counter are scalars with the methods of tensors."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "correct"


@triton.jit
def relu_kernel(x_ptr, y_ptr, cols, factor, lowest, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    for b in range(tl.cdiv(cols, BLOCK)):
        c = b.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + c, mask=c < cols, other=0.0)
        low = tl.full((BLOCK,), 0.0, lowest.dtype) + lowest
        tl.store(y_ptr + row * cols + c, tl.maximum(x * factor.to(x.dtype), low), mask=c < cols)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        relu_kernel[(x.shape[0],)](x, y, x.shape[1], 1.0, 0.0, BLOCK=64)
        return y
