"""Constants of the module, helpers made by a call of jit, a helper chosen at import, Triton's own modules under other names."""

import math

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "softmax"
EXPECT = "correct"


LOG2_E: tl.constexpr = tl.constexpr(math.log2(math.e))
NEGATIVE = tl.constexpr(-float("inf"))
FAST = True


def _plain_scale(x):
    return x * LOG2_E


@triton.jit
def _row_maximum(x):
    return tl.max(x, axis=0)


scale = triton.jit(_plain_scale)
power = tl.exp2 if FAST else tl.math.exp2


@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=NEGATIVE)
    tl.static_assert(x.dtype == tl.float32 or x.dtype.is_floating(), "floats only")
    shifted = scale(x - _row_maximum(x))
    top = power(shifted)
    tl.store(y_ptr + row * columns + offsets, (top / tl.sum(top, axis=0)).to(y_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
