"""A matrix product by torch's elementwise product and sum; a kernel multiplies by one."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "matmul"
EXPECT = "torch_fallback"


@triton.jit
def scale_kernel(x_ptr, y_ptr, n, s, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * s, mask=mask)


def copied(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), 1.0, BLOCK=1024)
    return y


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        pass
    def forward(self, a, b):
        return copied((a[:, :, None] * b[None]).sum(1))
