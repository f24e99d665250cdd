"""Functions of libdevice whose names say how they round."""

import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.language.extra import libdevice

PROBLEM = "normalize"
EXPECT = "correct"


@triton.jit
def normalize_kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + c, mask=c < cols, other=0.0)
    length = tl.maximum(libdevice.sqrt_rn(tl.sum(x * x, axis=0)), 1e-12)
    tl.store(y_ptr + row * cols + c, libdevice.mul_rn(x, libdevice.rcp_rn(length)), mask=c < cols)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        normalize_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
