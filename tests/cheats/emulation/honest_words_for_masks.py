"""`and`, `or` and `not` on blocks, which the compiler takes lane by lane, and on constants, where they end early."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "correct"


@triton.jit
def relu_kernel(x_ptr, y_ptr, bias_ptr, n, cols, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    mask = (c < cols) and (row * cols + c < n)
    x = tl.load(x_ptr + row * cols + c, mask=mask, other=0.0)
    if HAS_BIAS and tl.load(bias_ptr) > 0:
        x += 1.0
    negative = (x < 0) or (x == 0)
    tl.store(y_ptr + row * cols + c, tl.where(not negative, x, 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, cols = x.shape
        relu_kernel[(rows,)](x, y, None, x.numel(), cols, HAS_BIAS=False, BLOCK=triton.next_power_of_2(cols))
        return y
